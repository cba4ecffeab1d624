package e2b_test

import (
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
)

const conformance = "../../docs/conformance/e2b.md"

// states are what a row may say of something: each but the first says how or
// why.
var states = []string{"done", "differs", "refused"}

// row is one line of a table: what it is about, and what is said of it.
type row struct {
	line    int
	subject string
	state   string
	text    string
}

// rows reads the tables of the document whose second column is a state.
func rows(t *testing.T) (out []row) {
	t.Helper()
	b, err := os.ReadFile(conformance)
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for i, line := range strings.Split(string(b), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case strings.HasPrefix(line, "|---"):
			in = true
		case in && len(cells) == 3:
			out = append(out, row{i + 1, strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		case in:
			t.Errorf("line %d: a row has three cells: %s", i+1, line)
		}
	}
	return out
}

func TestConformanceRows(t *testing.T) {
	all := rows(t)
	if len(all) == 0 {
		t.Fatal("the document has no rows")
	}
	for _, r := range all {
		if !slices.Contains(states, r.state) {
			t.Errorf("line %d: %s is %q; want one of %q", r.line, r.subject, r.state, states)
		}
		if r.state != "done" && r.text == "" {
			t.Errorf("line %d: %s: say how it %s", r.line, r.subject, r.state)
		}
	}
}

var code = regexp.MustCompile("`([^`]+)`")

// TestConformanceIsComplete wants a row for each operation that E2B has, and
// a route for each of the API's that is not refused.
func TestConformanceIsComplete(t *testing.T) {
	b, err := os.ReadFile("testdata/operations.txt")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]row{}
	for _, r := range rows(t) {
		for _, m := range code.FindAllStringSubmatch(r.subject, -1) {
			told[m[1]] = r
		}
	}
	mux := e2b.New(e2b.Options{Manager: &fake{}, Templates: nil}).ServeMux
	for op := range strings.Lines(string(b)) {
		if op = strings.TrimSpace(op); op == "" || strings.HasPrefix(op, "#") {
			continue
		}
		r, ok := told[op]
		if !ok {
			t.Errorf("%s: no row tells of it", op)
			continue
		}
		if strings.HasPrefix(op, "envd ") || r.state == "refused" {
			continue
		}
		method, path, _ := strings.Cut(op, " ")
		if strings.HasPrefix(path, "/volumecontent/") {
			continue // a server of its own
		}
		if _, pattern := mux.Handler(httptest.NewRequest(method, path, nil)); pattern == "/" {
			t.Errorf("%s is %s by line %d, and there is no such route", op, r.state, r.line)
		}
	}
}
