package boxservice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
)

const (
	root        = "../.."
	conformance = root + "/docs/conformance/box.md"
	protocol    = root + "/api/langbot/rpc.go"
	endpoints   = root + "/internal/langbot/http.go"
)

// row is one line of a table: what it is about, what is said of it, and how.
type row struct {
	line                          int
	section, subject, state, text string
}

// rows reads the tables of a document whose rows have three cells.
func rows(t *testing.T, text string) (out []row) {
	t.Helper()
	section, in := "", false
	for i, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), " | ")
		switch {
		case strings.HasPrefix(line, "## "):
			section, in = line[len("## "):], false
		case !strings.HasPrefix(line, "|"):
			in = false
		case strings.HasPrefix(line, "|---"):
			in = true
		case in && len(cells) == 3:
			out = append(out, row{i + 1, section, strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		case in:
			t.Errorf("line %d: a row has three cells: %s", i+1, line)
		}
	}
	return out
}

func documented(t *testing.T) []row {
	t.Helper()
	b, err := os.ReadFile(conformance)
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t, string(b))
	if len(all) == 0 {
		t.Fatal("the document has no rows")
	}
	return all
}

var quoted = regexp.MustCompile("`([^`]+)`")

// subjects are the words of code that rows of some sections are about.
func subjects(t *testing.T, sections ...string) map[string]row {
	t.Helper()
	m := map[string]row{}
	for _, r := range documented(t) {
		if !slices.Contains(sections, r.section) {
			continue
		}
		for _, q := range quoted.FindAllStringSubmatch(r.subject, -1) {
			m[r.section+" "+q[1]] = r
		}
	}
	return m
}

func TestConformanceRows(t *testing.T) {
	states := []string{"done", "differs", "refused"}
	seen := map[string]int{}
	for _, r := range documented(t) {
		if !slices.Contains(states, r.state) {
			t.Errorf("line %d: %s is %q; want one of %q", r.line, r.subject, r.state, states)
		}
		if r.state != "done" && r.text == "" {
			t.Errorf("line %d: %s: say how it %s", r.line, r.subject, r.state)
		}
		if n := seen[r.section+r.subject]; n > 0 && r.subject != "`memory_mb`" && r.subject != "`env`" {
			t.Errorf("line %d: %s has a row already: line %d", r.line, r.subject, n)
		}
		seen[r.section+r.subject] = r.line
	}
}

// TestConformanceCases wants a row for each test of LangBot's, and for each
// row of a test one of ours that is there.
func TestConformanceCases(t *testing.T) {
	b, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	told, cases := subjects(t, "Its own tests"), 0
	for line := range strings.Lines(string(b)) {
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		cases++
		r, ok := told["Its own tests "+name]
		switch {
		case !ok:
			t.Errorf("%s: no row tells of it", name)
		case !strings.Contains(r.text, "/"+name+"`"):
			t.Errorf("line %d: %s: no test of that name is named", r.line, name)
		}
	}
	if cases != 73 || len(told) != cases {
		t.Errorf("there are %d cases and %d rows; want 73 of each", cases, len(told))
	}
	for _, r := range documented(t) {
		wants := r.section == "Its own tests" || r.section == "What it lacks"
		names := testNames(r.text)
		if wants && len(names) == 0 {
			t.Errorf("line %d: %s: no test is named", r.line, r.subject)
		}
		for _, n := range names {
			if !n.exists(t, root) {
				t.Errorf("line %d: there is no test %s", r.line, n)
			}
		}
	}
}

// testName is a test as the document names it.
type testName struct{ pkg, fn, sub string }

func (n testName) String() string { return n.pkg + "." + n.fn + "/" + n.sub }

var testPattern = regexp.MustCompile("`((?:internal|client|contrib|cmd|test|api)[a-z0-9/-]*)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/([^`]+))?`")

func testNames(text string) (names []testName) {
	for _, m := range testPattern.FindAllStringSubmatch(text, -1) {
		names = append(names, testName{m[1], m[2], m[3]})
	}
	return names
}

// exists says whether the package below dir has the function, and, in the same
// file, a literal with the name of the subtest.
func (n testName) exists(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(n.pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		declared := slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && fn.Recv == nil && fn.Name.Name == n.fn
		})
		return declared && (n.sub == "" || slices.Contains(literals(f), n.sub))
	})
}

// literals are the strings that stand in a syntax tree.
func literals(n ast.Node) (list []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				list = append(list, s)
			}
		}
		return true
	})
	return list
}

// TestConformanceWire wants a row for each action, endpoint, header and field
// that there is.
func TestConformanceWire(t *testing.T) {
	told := subjects(t, "Actions", "Endpoints", "Fields")
	want := func(section, name string) {
		if _, ok := told[section+" "+name]; !ok {
			t.Errorf("%s: no row tells of it among %s", name, section)
		}
	}
	actions, headers := constants(t, "Action"), constants(t, "Header")
	if len(actions) < 20 || len(headers) < 4 {
		t.Fatalf("%d actions and %d headers: find them in another way", len(actions), len(headers))
	}
	for _, a := range actions {
		want("Actions", a)
	}
	for _, h := range headers {
		want("Endpoints", h)
	}
	routes := 0
	for _, l := range literals(parse(t, endpoints)) {
		if strings.HasPrefix(l, "GET /") {
			routes++
			want("Endpoints", l)
		}
	}
	if routes < 5 {
		t.Fatalf("%d endpoints: find them in another way", routes)
	}
	for _, v := range []any{api.Spec{}, api.ProcessSpec{}} {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			want("Fields", name)
		}
	}
	for _, r := range told {
		for _, q := range quoted.FindAllStringSubmatch(r.subject, -1) {
			if r.section == "Actions" && !slices.Contains(actions, q[1]) {
				t.Errorf("line %d: there is no action %s", r.line, q[1])
			}
		}
	}
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// constants are the values of the protocol's constants whose names begin so.
func constants(t *testing.T, prefix string) (values []string) {
	t.Helper()
	for _, d := range parse(t, protocol).Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, prefix) {
				values = append(values, literals(v)...)
			}
		}
	}
	return values
}

// TestConformanceRefuses has the checks find what is missing.
func TestConformanceRefuses(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "internal", "x")
	if err := os.MkdirAll(pkg, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string]string{
		"a_test.go": "package x\nfunc TestA(t *testing.T) { t.Run(\"one\", f) }\n",
		"b_test.go": "package x\nfunc (w world) TestB(t *testing.T) { t.Run(\"two\", f) }\n",
	} {
		if err := os.WriteFile(filepath.Join(pkg, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"`internal/x.TestA`": true, "`internal/x.TestA/one`": true,
		"`internal/x.TestA/two`": false, "`internal/x.TestB`": false, "`internal/y.TestA`": false,
	} {
		names := testNames(name)
		if len(names) != 1 || names[0].exists(t, dir) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if got := rows(t, "## S\n| a | b | c |\n|---|---|---|\n| `x` | done | |\n"); len(got) != 1 || got[0].section != "S" || got[0].state != "done" || got[0].text != "" {
		t.Errorf("got %+v", got)
	}
}
