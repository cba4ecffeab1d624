package server

import (
	"errors"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// namedCache knows one template's snapshot.
type namedCache struct{ TemplateCache }

func (namedCache) NamesOf(snapshot string) []string {
	if snapshot == "sn_tagged" {
		return []string{"web"}
	}
	return nil
}

// A snapshot of a template build is not removed by itself, and one of a sandbox is.
func TestSnapshotsOfBuilds(t *testing.T) {
	a := templateAPI{namedCache{}}
	for _, tt := range []struct{ owner, id, hint string }{
		{"uid:0", "sn_tagged", ""},
		{"template:uid:0", "sn_tagged", "carboy template rm web"},
		{"template:uid:0", "sn_step", "carboy template gc"},
	} {
		err := a.ofBuild(sandbox.Snapshot{Owner: tt.owner, ID: tt.id})
		e, refused := errors.AsType[*sandbox.Error](err)
		if refused != (tt.hint != "") || refused && (e.Hint != tt.hint || e.Kind != sandbox.Conflict) {
			t.Errorf("%s of %s: %#v", tt.id, tt.owner, err)
		}
	}
}
