package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/carboy-sandbox/carboy"

// root is the repository's, seen from this package.
const root = "../.."

// skipped are directories that hold nothing of ours, by name or by path.
var skipped = []string{".git", ".tools", "bin", "node_modules", "internal/gitgate/scan/rules"}

// source is one file of the repository.
type source struct {
	path string // relative to the root, slash-separated
	text []byte
}

var readTree = sync.OnceValues(func() ([]source, error) { return walk(os.DirFS(root)) })

// tree returns every file of the repository.
func tree(t *testing.T) []source {
	t.Helper()
	files, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func walk(fsys fs.FS) (files []source, err error) {
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(skipped, d.Name()) || slices.Contains(skipped, p)):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		files = append(files, source{p, text})
		return err
	})
	return files, err
}

// goFile is a parsed source.
type goFile struct {
	source
	fset *token.FileSet
	ast  *ast.File
}

func parse(s source) (goFile, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	return goFile{s, fset, f}, err
}

// parseTree parses each Go file of the repository, once for all tests.
var parseTree = sync.OnceValues(func() (out []goFile, err error) {
	files, err := readTree()
	if err != nil {
		return nil, err
	}
	for _, s := range files {
		if path.Ext(s.path) != ".go" || strings.Contains(s.path, "/testdata/") {
			continue
		}
		f, err := parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
})

// goFiles returns the Go files.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// handWritten returns the Go files that no generator wrote.
func handWritten(t *testing.T) []goFile {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(goFiles(t)), func(f goFile) bool { return ast.IsGenerated(f.ast) })
}

// has reports whether a text has one of some words. They are looked for before a pattern that
// needs one of them, which is slow under the race detector.
func has(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// mustParse parses the text of a negative control.
func mustParse(t *testing.T, name, text string) goFile {
	t.Helper()
	f, err := parse(source{name, []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pkg is what go list says of a package of ours.
type pkg struct {
	ImportPath string
	Imports    []string // its own, without those of its tests
	Deps       []string // those and all that they import
}

// name is the import path below the module.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// packages lists ours as they are compiled into the product.
func packages(t *testing.T) []pkg {
	t.Helper()
	ps, err := listPackages()
	if err != nil {
		t.Fatal("go list:", err)
	}
	return ps
}

// listPackages asks go list, once for all tests.
var listPackages = sync.OnceValues(func() (ps []pkg, err error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = filepath.FromSlash(root)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return ps, nil
		} else if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
})

// within reports whether p is prefix or lies below it.
func within(p, prefix string) bool {
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}
