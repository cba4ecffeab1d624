package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"testing"
)

// Where a file or a function stops being one thing.
const (
	maxFileLines = 500
	maxFuncLines = 80
)

func TestSizes(t *testing.T) {
	for _, f := range handWritten(t) {
		for _, problem := range tooLong(f) {
			t.Error(problem)
		}
	}
}

// tooLong names what of f is longer than it should be. A literal, such as the
// table of a test, counts as one line of the function around it: a table may
// be as long as there are cases.
func tooLong(f goFile) (problems []string) {
	if n := bytes.Count(f.text, []byte("\n")); n > maxFileLines {
		problems = append(problems, fmt.Sprintf("%s: %d lines, at most %d", f.path, n, maxFileLines))
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		if n := f.lines(fn) - f.literalLines(fn.Body); n > maxFuncLines {
			problems = append(problems, fmt.Sprintf("%s: %d lines, at most %d", f.fset.Position(fn.Pos()), n, maxFuncLines))
		}
	}
	return problems
}

// lines counts the lines of n.
func (f goFile) lines(n ast.Node) int {
	return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1
}

// literalLines counts the lines that literals in n take beyond their first,
// the bodies of functions in them not included.
func (f goFile) literalLines(n ast.Node) (lines int) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		lines += f.lines(lit) - 1
		ast.Inspect(lit, func(n ast.Node) bool {
			if fn, ok := n.(*ast.FuncLit); ok {
				lines -= f.lines(fn) - 1
				lines += f.literalLines(fn.Body)
				return false
			}
			return true
		})
		return false
	})
	return lines
}

func TestSizesRefuse(t *testing.T) {
	line := func(n int, s string) string {
		return string(bytes.Repeat([]byte(s+"\n"), n))
	}
	tests := []struct {
		name, text string
		want       int // problems
	}{
		{"short", "package p\nfunc f() {\n" + line(78, "_ = 0") + "}\n", 0},
		{"long-function", "package p\nfunc f() {\n" + line(79, "_ = 0") + "}\n", 1},
		{"long-method", "package p\ntype t int\nfunc (t) f() {\n" + line(79, "_ = 0") + "}\n", 1},
		{"long-table", "package p\nfunc f() {\n_ = []int{\n" + line(200, "0,") + "}\n}\n", 0},
		{"long-function-in-table", "package p\nfunc f() {\n_ = []func(){func() {\n" + line(80, "_ = 0") + "}}\n}\n", 1},
		{"long-file", "package p\n" + line(500, "// x"), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tooLong(mustParse(t, "p.go", tt.text)); len(got) != tt.want {
				t.Errorf("tooLong = %q, want %d problems", got, tt.want)
			}
		})
	}
}
