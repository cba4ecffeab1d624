package secret_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestKnown: what a sandbox may use is told by its name, its own before its owner's, and of a command what it printed
// and is still used. No command is run for it.
func TestKnown(t *testing.T) {
	o := options(t)
	runs, now := 0, time.Now()
	o.Now = func() time.Time { return now }
	o.Run = func(context.Context, secret.Command) ([]byte, error) { runs++; return []byte("minted-0123456789"), nil }
	s := mustOpen(t, o)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of-a-file-0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, me, "PLAIN", text(value))
	mustPut(t, s, me, "OWN", text("its-owners-0123"))
	mustPut(t, s, me, "FILE", secret.Source{File: file})
	mustPut(t, s, me, "ONCE", secret.Source{Command: []string{"/bin/mint"}})
	mustPut(t, s, me, "KEPT", secret.Source{Command: []string{"/bin/mint"}, TTL: time.Hour})
	if _, err := s.PutFor(t.Context(), me, "sb_a", "OWN", text("the-sandboxs-0123")); err != nil {
		t.Fatal(err)
	}
	names := []string{"PLAIN", "OWN", "FILE", "ONCE", "KEPT", "GONE"}
	known := func() map[string]string {
		t.Helper()
		ran := runs
		all, err := s.Known(t.Context(), me, "sb_a", names)
		if err != nil || runs != ran {
			t.Errorf("Known: %v, %d commands", err, runs-ran)
		}
		out := map[string]string{}
		for name, v := range all {
			out[name] = v.Reveal()
		}
		return out
	}
	want := map[string]string{"PLAIN": value, "OWN": "the-sandboxs-0123", "FILE": "of-a-file-0123", "KEPT": "minted-0123456789"}
	if got := known(); !maps.Equal(got, want) {
		t.Errorf("Known = %q, want %q", got, want)
	}
	now = now.Add(2 * time.Hour)
	delete(want, "KEPT")
	if got := known(); !maps.Equal(got, want) {
		t.Errorf("once a command's is used no more: %q, want %q", got, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err := s.Known(t.Context(), me, "sb_a", names)
	wantKind(t, err, sandbox.Unavailable)
}
