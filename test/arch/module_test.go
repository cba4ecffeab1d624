package arch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestModuleFile(t *testing.T) {
	imported := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, i := range f.ast.Imports {
			imported[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
	for _, problem := range moduleProblems(readModule(t, filepath.Join(root, "go.mod")), imported) {
		t.Error(problem)
	}
}

// goMod is what we look at of a go.mod.
type goMod struct {
	Require   []requirement
	Replace   []json.RawMessage
	Exclude   []json.RawMessage
	Toolchain string
}

type requirement struct {
	Path     string
	Indirect bool
}

func readModule(t *testing.T, file string) (m goMod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal("go mod edit:", err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal("go mod edit:", err)
	}
	return m
}

// moduleProblems says what is wrong with a go.mod: what would make the module
// mean something else when others build it, and requirements that are marked
// as another's and used here, or not so marked and not used.
func moduleProblems(m goMod, imported map[string]bool) (problems []string) {
	if len(m.Replace) > 0 {
		problems = append(problems, "go.mod: has a replace: others' builds would not")
	}
	if len(m.Exclude) > 0 {
		problems = append(problems, "go.mod: has an exclude: others' builds would not")
	}
	if m.Toolchain != "" {
		problems = append(problems, "go.mod: names a toolchain: the go line says what is needed")
	}
	direct := map[string]bool{}
	for p := range imported {
		direct[owner(p, m.Require)] = true
	}
	for _, r := range m.Require {
		if direct[r.Path] == r.Indirect {
			problems = append(problems, fmt.Sprintf("go.mod: %s: imported here: %t, marked indirect: %t; run go mod tidy",
				r.Path, direct[r.Path], r.Indirect))
		}
	}
	return problems
}

// owner returns the module that holds the package p: the longest whose path
// leads to it, or "".
func owner(p string, modules []requirement) string {
	best := ""
	for _, m := range modules {
		if within(p, m.Path) && len(m.Path) > len(best) {
			best = m.Path
		}
	}
	return best
}

func TestModuleFileRefuse(t *testing.T) {
	tests := []struct {
		name, text string
		imports    []string
		want       int
	}{
		{"tidy", "require a.b/c v1.0.0\nrequire a.b/d v1.0.0 // indirect", []string{"a.b/c/x", "os"}, 0},
		{"unused", "require a.b/c v1.0.0", nil, 1},
		{"used-indirect", "require a.b/c v1.0.0 // indirect", []string{"a.b/c"}, 1},
		{"longest-path", "require a.b/c v1.0.0 // indirect\nrequire a.b/c/d v1.0.0", []string{"a.b/c/d/e"}, 0},
		{"replace", "replace a.b/c => ../c", nil, 1},
		{"exclude", "exclude a.b/c v1.0.0", nil, 1},
		{"toolchain", "toolchain go1.26.3", nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "go.mod")
			text := "module example.com/m\n\ngo 1.26\n\n" + tt.text + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			imported := map[string]bool{}
			for _, i := range tt.imports {
				imported[i] = true
			}
			if got := moduleProblems(readModule(t, file), imported); len(got) != tt.want {
				t.Errorf("moduleProblems = %q, want %d", got, tt.want)
			}
		})
	}
}
