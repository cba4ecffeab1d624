package service_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestBelow: a sandbox's programs spawn pods below it, and see and end those alone that stand below; another sandbox of its name has none
// of them.
func TestBelow(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "other", "docs")
	lead, err := w.boxes.Get(t.Context(), ann, "lead")
	if err != nil {
		t.Fatal(err)
	}
	spawn := func(of *sandbox.Sandbox, name, target string) string {
		t.Helper()
		p, _, err := w.Below(of).Spawn(t.Context(), request("ignored", name, target))
		if p.Name == "" {
			return err.Error()
		}
		return p.Parent + " has " + p.Name
	}
	seen := func(of *sandbox.Sandbox) (names string) {
		t.Helper()
		list, err := w.Below(of).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			names += p.Name + " "
		}
		return names
	}
	if got := spawn(lead, "src", "src"); got != "lead has src" {
		t.Errorf("spawn: %s", got)
	}
	src, err := w.boxes.Get(t.Context(), ann, "src")
	if err != nil {
		t.Fatal(err)
	}
	if got := spawn(src, "deep", "src/x"); got != "src has deep" {
		t.Errorf("spawn: %s", got)
	}
	for refused, want := range map[string]string{
		spawn(lead, "lead", "docs"): "spawned pod name `lead` collides with spawner's own name",
		spawn(src, "x", "docs"):     "requested scope `/workspace/docs` is not within spawner `src`'s effective scope: no rule is about it",
	} {
		if refused != want {
			t.Errorf("refused is %q, want %q", refused, want)
		}
	}
	for of, want := range map[*sandbox.Sandbox]string{lead: "deep other src ", src: "deep "} {
		if got := seen(of); got != want {
			t.Errorf("%s sees %q, want %q", of.Spec.Name, got, want)
		}
	}
	for _, name := range []string{"lead", "src", "other", "none"} {
		b := w.Below(src)
		_, gerr := b.Get(t.Context(), name)
		_, oerr := b.Output(t.Context(), name, 0, false)
		_, serr := b.Stop(t.Context(), name)
		for what, err := range map[string]error{"get": gerr, "send": b.Send(t.Context(), name, "x"), "output": oerr, "stop": serr} {
			if sandbox.KindOf(err) != sandbox.NotFound || err.Error() != "no spawned pod named `"+name+"`" {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
	}
	if _, err := w.Below(src).Stop(t.Context(), "deep"); err != nil {
		t.Error(err)
	}
	another := lead.Clone()
	another.ID = "sb_another"
	if got := seen(another); got != "" {
		t.Errorf("another sandbox of that name sees %q", got)
	}
	if c, err := w.Below(src).Own(t.Context()); err != nil || len(c) != 1 || c[0] != "true" {
		t.Errorf("its own command is %q, %v", c, err)
	}
}
