package interpreter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

const python = "python"

// normal is a language's name as contexts have it.
func normal(language string) string {
	switch l := strings.ToLower(strings.TrimSpace(language)); l {
	case "":
		return python
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	default:
		return l
	}
}

// kernelName is which kernel runs a language.
func kernelName(language string) string {
	if language == "typescript" {
		return "javascript"
	}
	return language
}

// missingError says that nothing in the sandbox runs a language, and what
// would.
type missingError struct {
	Language string
	Lacks    string   // what is not there
	Has      []string // the languages that do run
}

// needs has what to install for a language.
var needs = map[string]string{
	python:       "Debian's python3-ipykernel, or ipykernel by pip",
	"javascript": "a Jupyter kernel for JavaScript, such as ijavascript by npm",
	"bash":       "bash_kernel by pip, and python3 -m bash_kernel.install",
	"r":          "Debian's r-cran-irkernel, or IRkernel by R",
	"java":       "a Jupyter kernel for Java, such as IJava",
}

// Error says what to install.
func (e *missingError) Error() string {
	need, ok := needs[kernelName(e.Language)]
	if !ok {
		need = "a Jupyter kernel for it, with its kernel.json below /usr/local/share/jupyter/kernels"
	}
	return fmt.Sprintf("language %.40q: %s in this sandbox's image; install %s (there is: %s)",
		e.Language, e.Lacks, need, strings.Join(slices.Concat(e.Has, nil), ", "))
}

// launch is how a kernel is started.
type launch struct {
	spec   jupyter.Spec
	python []string // interpreters to try, for our own start of a kernel
}

// launchOf finds the kernel for a language.
func (s *Server) launchOf(language string) (launch, error) {
	specs := jupyter.Find(jupyter.Dirs(s.getenv))
	spec, ok := jupyter.ForLanguage(specs, kernelName(language))
	if language == python {
		return launch{spec: spec, python: s.pythons(spec)}, nil
	}
	if ok {
		return launch{spec: spec}, nil
	}
	has := []string{python}
	for _, sp := range specs {
		if l := strings.ToLower(sp.Language); l != "" && !slices.Contains(has, l) {
			has = append(has, l)
		}
	}
	return launch{}, &missingError{Language: language, Lacks: "there is no Jupyter kernel for it", Has: has}
}

// pythons lists the interpreters that may have ipykernel, the likely first.
func (s *Server) pythons(spec jupyter.Spec) []string {
	var found []string
	try := func(path string) {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	if len(spec.Argv) > 0 && filepath.IsAbs(spec.Argv[0]) {
		try(spec.Argv[0])
	}
	if p, err := exec.LookPath("python3"); err == nil {
		try(p)
	}
	try("/usr/local/bin/python3")
	try("/usr/bin/python3")
	return found
}

func (s *Server) getenv(name string) string {
	for _, kv := range s.o.Env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}
