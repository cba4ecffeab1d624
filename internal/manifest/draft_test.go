package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/provider"
)

// TestDrafts: what is written for each provider, in each of its ways, is read without a mistake, and
// reaches the provider's models.
func TestDrafts(t *testing.T) {
	list, bad := provider.List("")
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for _, p := range list {
		ways := [][]*provider.Way{nil}
		for i := range p.Access.Ways {
			ways = append(ways, []*provider.Way{&p.Access.Ways[i]})
		}
		for i, w := range ways {
			user := manifest.GitUser{}
			if i > 0 {
				user = manifest.GitUser{Name: `Ann "O'Hara": \ #1`, Email: "ann@example.com"}
			}
			d, err := manifest.DraftOf(p, w, user)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for sub, text := range map[string]string{"bottles": d.Bottle, "agents": d.Agent} {
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, sub, p.Name+".md"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			x, err := manifest.Load(manifest.Sources{Config: dir})
			if err != nil {
				t.Errorf("%s: %v in\n%s\n%s", p.Name, err, d.Bottle, d.Agent)
				continue
			}
			m, err := x.Manifest(p.Name)
			if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				continue
			}
			plan, err := m.Plan(p.Name + "-abc12")
			if err != nil || strings.Contains(plan.Text(), "reaches none of its models") {
				t.Errorf("%s: %v, %v", p.Name, err, plan)
			}
			if plan != nil && plan.GitUser != user {
				t.Errorf("%s: commits are by %+v, want %+v", p.Name, plan.GitUser, user)
			}
			for _, way := range w {
				if len(plan.Create.Secrets) == 0 || plan.Create.Secrets[0].Name != way.Secrets[0].Name {
					t.Errorf("%s: secrets %v, want %s", p.Name, plan.Create.Secrets, way.Secrets[0].Name)
				}
			}
		}
	}
}

// TestDraftUser has what git could not use, or half of it, not be written as if it could.
func TestDraftUser(t *testing.T) {
	for _, u := range []manifest.GitUser{{}, {Name: "Ann"}, {Email: "ann@example.com"}, {Name: "Ann <x>", Email: "ann@example.com"}} {
		d, err := manifest.DraftOf(&provider.Provider{Name: "x"}, nil, u)
		if err != nil || !strings.Contains(d.Bottle, "# Whom commits are by: git makes none without a name and an e-mail.\n# git_user: {") {
			t.Errorf("%+v: %v in\n%s", u, err, d.Bottle)
		}
	}
}
