package manifest_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestPlaced: what a machine refuses of a bottle is told with where the bottle says it.
func TestPlaced(t *testing.T) {
	dir := config(t, map[string]string{
		"bottles/b.md": "---\nimage: node:22\nlimits: {memory: 900g}\n---\n",
		"agents/a.md":  "---\nbottle: b\n---\n",
	})
	_, p := planOf(t, manifest.Sources{Config: dir}, "a")
	at := filepath.Join(dir, "bottles/b.md")
	for said, want := range map[string]string{
		"memory 900g: more than this machine has":  at + ":3:10: memory 900g: more than this machine has",
		`registry.example: node:22: there is none`: at + ":2:1: registry.example: node:22: there is none",
		"--image: no such image":                   at + ":2:1: image: no such image",
		"image: no such image":                     at + ":2:1: image: no such image",
		"cpus 64: more than this machine has":      "cpus 64: more than this machine has", // the bottle says nothing of them
		"the daemon is about to leave":             "the daemon is about to leave",
	} {
		err := p.Placed(sandbox.Errorf(sandbox.Unsupported, "%s", said).WithHint("at most 4g"))
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.Unsupported || e.Hint != "at most 4g" || e.Msg != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := p.Placed(nil); err != nil {
		t.Error(err)
	}
	if got, want := p.Warnings(), []string{"claude reaches none of its models: anthropic (no rule of the policy is about them)"}; !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
