package arch

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// hop is a function as docs/architecture.md names one: by its directory, its
// type and itself.
var hop = regexp.MustCompile("`((?:internal|client|api|cmd)[a-z0-9/_-]*\\.[A-Za-z.]+)`")

// TestWalks: each hop of the walks through the code is a function that is there.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walks, found := bytes.Cut(text, []byte("\n## Three walks through the code\n"))
	walks, _, end := bytes.Cut(walks, []byte("\n## "))
	if !found || !end {
		t.Fatal("docs/architecture.md has no walks")
	}
	declarations := map[string]bool{}
	for _, f := range handWritten(t) {
		for _, d := range f.ast.Decls {
			declarations[path.Dir(f.path)+"."+declared(d)] = true
		}
	}
	hops := hop.FindAllSubmatch(walks, -1)
	if len(hops) < 30 {
		t.Errorf("%d hops are named", len(hops))
	}
	for _, h := range hops {
		if !declarations[string(h[1])] {
			t.Errorf("docs/architecture.md: there is no function %s (any more)", h[1])
		}
	}
}
