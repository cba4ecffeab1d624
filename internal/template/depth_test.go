package template_test

import (
	"strconv"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/template"
)

// Templates of many steps, one over another, stay within the number of
// snapshots that may lie over one another, and leave room for more.
func TestDepthIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	var many []string
	for i := range 150 {
		many = append(many, strconv.Itoa(i))
	}
	p := runs(false, many...)
	for i, name := range []string{"one", "two", "three"} {
		if r := w.build(alice, name, p); r.Status != template.Ready {
			t.Fatalf("%s: %+v", name, r.Reason)
		}
		if n := len(w.ran); n != 150*(i+1) {
			t.Errorf("%s: %d commands ran in all, want %d", name, n, 150*(i+1))
		}
		w.build(alice, name, p)
		if n := w.SnapshotDepth(tagged(w, name)); n != 65+i || len(w.ran) != 150*(i+1) {
			t.Errorf("%s: %d snapshots lie over one another, %d commands ran", name, n, len(w.ran))
		}
		p.FromTemplate, p.HostImage = name, true
	}
}
