package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasOneComment(t *testing.T) {
	for _, problem := range packageComments(handWritten(t)) {
		t.Error(problem)
	}
}

// packageComments names the packages that no file describes, or more than one.
// A test package is described by the package that it tests, if there is one.
func packageComments(files []goFile) (problems []string) {
	described := map[string][]string{}
	for _, f := range files {
		dir := path.Dir(f.path)
		if f.ast.Doc.Text() != "" && !strings.HasPrefix(f.ast.Doc.Text(), "Code generated") {
			described[dir] = append(described[dir], f.path)
		} else if described[dir] == nil {
			described[dir] = []string{}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(described)) {
		switch by := described[dir]; len(by) {
		case 0:
			problems = append(problems, dir+": no file says what the package does and what it refuses")
		case 1:
		default:
			problems = append(problems, fmt.Sprintf("%s: described more than once: %s", dir, strings.Join(by, ", ")))
		}
	}
	return problems
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, f := range handWritten(t) {
		for _, problem := range undocumented(f) {
			t.Error(problem)
		}
	}
}

// undocumented names the exported declarations of f without a comment. In a
// group of constants, variables or types the group's comment will do, and so
// will one at the end of the line. A method says nothing new where its
// receiver is not exported, and tests export nothing.
func undocumented(f goFile) (problems []string) {
	if strings.HasSuffix(f.path, "_test.go") || f.ast.Name.Name == "main" {
		return nil
	}
	miss := func(id *ast.Ident) {
		problems = append(problems, fmt.Sprintf("%s: %s is exported and not documented", f.fset.Position(id.Pos()), id.Name))
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
				miss(d.Name)
			}
		case *ast.GenDecl:
			for _, id := range undocumentedSpecs(d) {
				miss(id)
			}
		}
	}
	return problems
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func undocumentedSpecs(d *ast.GenDecl) (ids []*ast.Ident) {
	if d.Tok == token.IMPORT || d.Doc != nil {
		return nil
	}
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
				ids = append(ids, s.Name)
			}
		case *ast.ValueSpec:
			for _, id := range s.Names {
				if id.IsExported() && s.Doc == nil && s.Comment == nil {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

func TestUnsafeIsSeenInTheName(t *testing.T) {
	for _, f := range handWritten(t) {
		if hidesUnsafe(f) {
			t.Errorf("%s imports unsafe: its name must end in _unsafe.go", f.path)
		}
	}
}

// unsafeName allows for a system or processor after it, and for tests.
var unsafeName = regexp.MustCompile(`_unsafe(_[a-z0-9]+)?(_test)?\.go$`)

func hidesUnsafe(f goFile) bool {
	if unsafeName.MatchString(f.path) {
		return false
	}
	return f.imports("unsafe")
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, problem := range sleeps(handWritten(t)) {
		t.Error(problem)
	}
}

// sleeps lists where tests sleep: they would be slow where that is too long,
// and fail at times where it is too short. Tests wait for facts. In a package
// that tests in the time of testing/synctest, sleeping takes none.
func sleeps(files []goFile) (problems []string) {
	fake := map[string]bool{}
	for _, f := range files {
		if f.imports("testing/synctest") {
			fake[path.Dir(f.path)] = true
		}
	}
	for _, f := range files {
		if !strings.HasSuffix(f.path, "_test.go") || fake[path.Dir(f.path)] {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				problems = append(problems, f.fset.Position(n.Pos()).String()+": a test sleeps; wait for the fact instead")
			}
			return true
		})
	}
	return problems
}

func (f goFile) imports(path string) bool {
	return slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+path+`"` })
}

// maxMainLines is as much as a main may do: hand over to what is tested.
const maxMainLines = 25

func TestMainsAreShort(t *testing.T) {
	found := false
	for _, f := range handWritten(t) {
		if n := f.mainLines(); within(f.path, "cmd") && n > 0 {
			found = true
			if n > maxMainLines {
				t.Errorf("%s: main has %d lines, at most %d", f.path, n, maxMainLines)
			}
		}
	}
	if !found {
		t.Error("no main was found below cmd")
	}
}

func (f goFile) mainLines() int {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "main" && fn.Recv == nil {
			return f.lines(fn)
		}
	}
	return 0
}

func TestSourceGuardsRefuse(t *testing.T) {
	tests := []struct {
		name, path, text string
		problems         func(goFile) int
		want             int
	}{
		{"no-package-comment", "p/p.go", "package p", commentProblems, 1},
		{"a-package-comment", "p/p.go", "// Package p does.\npackage p", commentProblems, 0},
		{"undocumented-func", "p/p.go", "package p\nfunc F() {}", docProblems, 1},
		{"undocumented-method", "p/p.go", "package p\nfunc (*T[X]) F() {}", docProblems, 1},
		{"method-of-unexported", "p/p.go", "package p\nfunc (t) F() {}", docProblems, 0},
		{"undocumented-type", "p/p.go", "package p\ntype T int", docProblems, 1},
		{"undocumented-in-group", "p/p.go", "package p\nconst (\n\tA = 1\n\tB = 2 // two\n)", docProblems, 1},
		{"documented-group", "p/p.go", "package p\n// Numbers.\nconst (\n\tA = 1\n\tB = 2\n)", docProblems, 0},
		{"a-sleep", "p/p_test.go", "package p\nfunc f() { time.Sleep(1) }", sleepProblems, 1},
		{"another-sleep", "p/p_test.go", "package p\nfunc f() { clock.Sleep(1) }", sleepProblems, 0},
		{"a-sleep-in-fake-time", "p/p_test.go", "package p\nimport _ \"testing/synctest\"\nfunc f() { time.Sleep(1) }", sleepProblems, 0},
		{"hidden-unsafe", "p/p.go", "package p\nimport _ \"unsafe\"", unsafeProblems, 1},
		{"named-unsafe", "p/p_unsafe.go", "package p\nimport _ \"unsafe\"", unsafeProblems, 0},
		{"named-unsafe-for-linux", "p/p_unsafe_linux.go", "package p\nimport _ \"unsafe\"", unsafeProblems, 0},
		{"no-unsafe", "p/p.go", "package p\nimport _ \"os\"", unsafeProblems, 0},
		{"an-early-pattern", "p/p.go", "package p\nvar a, b = 1, regexp.MustCompile(`x`)", patternProblems, 1},
		{"a-late-pattern", "p/p.go", "package p\nvar a = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`x`) })", patternProblems, 0},
		{"a-test's-pattern", "p/p_test.go", "package p\nvar a = regexp.MustCompile(`x`)", patternProblems, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.problems(mustParse(t, tt.path, tt.text)); got != tt.want {
				t.Errorf("%d problems, want %d", got, tt.want)
			}
		})
	}
}

func commentProblems(f goFile) int { return len(packageComments([]goFile{f})) }
func sleepProblems(f goFile) int   { return len(sleeps([]goFile{f})) }
func docProblems(f goFile) int     { return len(undocumented(f)) }
func patternProblems(f goFile) int { return len(earlyPatterns(f)) }

func unsafeProblems(f goFile) int {
	if hidesUnsafe(f) {
		return 1
	}
	return 0
}

// TestPatternsAreCompiledWhenNeeded: each sandbox starts this binary several
// times, and most of what that costs is the initialization of packages.
func TestPatternsAreCompiledWhenNeeded(t *testing.T) {
	for _, f := range handWritten(t) {
		for _, problem := range earlyPatterns(f) {
			t.Error(problem)
		}
	}
}

// earlyPatterns names the variables of a package, tests and generators apart,
// that are patterns compiled in each process.
func earlyPatterns(f goFile) (problems []string) {
	if strings.HasSuffix(f.path, "_test.go") {
		return nil
	}
	for _, d := range f.ast.Decls {
		vars, ok := d.(*ast.GenDecl)
		if !ok || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				call, ok := value.(*ast.CallExpr)
				if !ok {
					continue
				}
				if fun, ok := call.Fun.(*ast.SelectorExpr); ok && fmt.Sprint(fun.X) == "regexp" {
					problems = append(problems, fmt.Sprintf("%s: compiled in each process: make it a sync.OnceValue", f.fset.Position(value.Pos())))
				}
			}
		}
	}
	return problems
}
