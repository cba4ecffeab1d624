package secret_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Whoever asks a store that can't be opened is told so; whoever needs no
// secret goes on, and what was kept for a sandbox goes with it.
func TestClosed(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "sandboxes", "id-sb_1")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	c, ctx := secret.Closed{Dir: dir, Why: errors.New("boom")}, t.Context()
	_, put := c.Put(ctx, "uid:0", "A", secret.Source{})
	_, putFor := c.PutFor(ctx, "uid:0", "sb_1", "A", secret.Source{})
	_, rotate := c.Rotate(ctx, "uid:0", "A", nil)
	_, list := c.List(ctx, "uid:0")
	_, value := c.Value(ctx, "uid:0", "", "A")
	for name, err := range map[string]error{
		"put": put, "put-for": putFor, "rotate": rotate, "list": list, "value": value,
		"remove": c.Remove(ctx, "uid:0", "A", true), "check": c.Check(ctx, "uid:0", []string{"A"}),
	} {
		if sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Check(ctx, "uid:0", nil); err != nil {
		t.Errorf("no secret is asked for: %v", err)
	}
	if err := c.RemoveFor(ctx, "sb_1"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was kept for a sandbox: %v", err)
	}
}
