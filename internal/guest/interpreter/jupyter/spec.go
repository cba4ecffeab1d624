package jupyter

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Spec describes a kernel, as its kernel.json does.
type Spec struct {
	Name          string            `json:"-"`
	Argv          []string          `json:"argv"` // {connection_file} stands for a path
	Language      string            `json:"language"`
	DisplayName   string            `json:"display_name"`
	InterruptMode string            `json:"interrupt_mode"` // "signal", which is the default, or "message"
	Env           map[string]string `json:"env"`
}

const (
	maxSpec  = 64 << 10
	maxSpecs = 256
)

// Dirs returns where kernels are described, in order, by the environment that
// get looks up.
func Dirs(get func(string) string) []string {
	var dirs []string
	for _, d := range filepath.SplitList(get("JUPYTER_PATH")) {
		dirs = append(dirs, filepath.Join(d, "kernels"))
	}
	if home := get("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".local/share/jupyter/kernels"))
	}
	return append(dirs, "/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")
}

// Find returns the kernels that are described below dirs. Where two have a
// name, the first counts; what can't be read is passed over.
func Find(dirs []string) []Spec {
	var specs []Spec
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := strings.ToLower(e.Name())
			if len(specs) >= maxSpecs || slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name }) {
				continue
			}
			if s, err := read(filepath.Join(dir, e.Name(), "kernel.json")); err == nil {
				s.Name = name
				specs = append(specs, s)
			}
		}
	}
	return specs
}

func read(path string) (Spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return Spec{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return Spec{}, err
	}
	return ParseSpec(data)
}

// ParseSpec reads a kernel.json. Fields that are not known are passed over:
// Jupyter adds to them.
func ParseSpec(data []byte) (Spec, error) {
	var s Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return Spec{}, err
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return Spec{}, os.ErrInvalid
	}
	return s, nil
}

// ForLanguage returns the kernel for a language: the one of its name, or else
// the first that says it speaks it.
func ForLanguage(specs []Spec, language string) (Spec, bool) {
	for _, s := range specs {
		if s.Name == language {
			return s, true
		}
	}
	for _, s := range specs {
		if strings.EqualFold(s.Language, language) {
			return s, true
		}
	}
	return Spec{}, false
}
