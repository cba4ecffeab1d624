package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// boxServe runs `carboy langbot serve` over a wall and returns its address.
func (h *home) boxServe(wall string, settings map[string]any) string {
	h.t.Helper()
	all := map[string]any{"isolation": wall}
	for k, v := range settings {
		all[k] = v
	}
	h.configureBox(all)
	return h.listen("langbot", "serve", "--listen", "127.0.0.1:0")
}

// configureBox writes the section "box" of the configuration, and nothing else.
func (h *home) configureBox(all map[string]any) {
	h.t.Helper()
	config, err := json.Marshal(map[string]any{"box": all})
	if err != nil {
		h.t.Fatal(err)
	}
	dir := filepath.Join(h.dir, "config", "carboy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// scenarios runs those of a client of the RPC that shares nothing with us, and
// returns what each found out.
func scenarios(t *testing.T, addr string, names ...string) map[string]json.RawMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(5*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", append([]string{filepath.Join("..", "box", "rpc.py"), addr}, names...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("rpc.py %q: %v\n%s%s", names, err, out.Bytes(), tail(errs.Bytes(), 3000))
	}
	found := map[string]json.RawMessage{}
	for line := range strings.Lines(out.String()) {
		if err := json.Unmarshal([]byte(line), &found); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	t.Logf("%s", bytes.TrimSpace(out.Bytes()))
	return found
}

// A client that was written from the description of LangBot's protocol alone,
// in another language, finds all of it.
func TestBoxByItsDescription(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		wall  string
		names []string
	}{
		{"process", []string{"everything:10000", "tenants", "tenanted", "tree", "quota", "owned"}},
		{"gvisor", []string{"everything:2000", "tree", "quota", "owned"}},
	} {
		t.Run(tt.wall, func(t *testing.T) {
			h := newHome(t)
			scenarios(t, h.boxServe(tt.wall, nil), tt.names...)
			h.ok("session", "status")
		})
	}
}

// Many sessions at once have an answer to each of their commands.
func TestBoxManySessions(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	addr := h.boxServe("process", nil)
	scenarios(t, addr, "load:64,5")
}
