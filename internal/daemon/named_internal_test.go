package daemon

import (
	"context"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// keptSecrets has one secret, which it removes, and of another says that it is used.
type keptSecrets struct{ server.Secrets }

func (keptSecrets) Remove(_ context.Context, _, name string, _ bool) error {
	if name == "used" {
		return sandbox.Errorf(sandbox.Conflict, "secret used: a sandbox uses it")
	}
	return nil
}

// otherNames are the names that a dialect's clients have for secrets.
type otherNames struct {
	team.Secrets
	all []team.Secret
}

func (o *otherNames) NamedSecrets(context.Context, string) ([]team.Secret, error) {
	return slices.Clone(o.all), nil
}

func (o *otherNames) DeleteNamedSecret(_ context.Context, id string) error {
	o.all = slices.DeleteFunc(o.all, func(s team.Secret) bool { return s.ID == id })
	return nil
}

// What is removed over /v1/ is gone for clients of the other dialect too, and what stays
// is not.
func TestRemovalDropsTheOtherName(t *testing.T) {
	names := &otherNames{all: []team.Secret{{ID: "1", Kept: "mine"}, {ID: "2", Kept: "used"}, {ID: "3", Kept: "else"}}}
	s := named(keptSecrets{}, names)
	if err := s.Remove(t.Context(), "uid:1", "mine", false); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "uid:1", "used", false); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("one that is used: %v", err)
	}
	if len(names.all) != 2 || names.all[0].ID != "2" || names.all[1].ID != "3" {
		t.Errorf("left are %+v", names.all)
	}
}
