package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// The SDK that E2B publishes, unmodified, over TCP with a key.
func TestE2BSDK(t *testing.T) {
	if _, err := os.Stat("../e2b/node_modules/e2b"); err != nil {
		t.Fatal("the SDK is not installed: make deps")
	}
	h := newHome(t)
	var secret [20]byte
	rand.Read(secret[:])
	key := "e2b_" + hex.EncodeToString(secret[:])
	url := h.serve(key)
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "../e2b/sandbox.test.mjs")
	cmd.Env = append(os.Environ(), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// serve runs `carboy serve` on a free port with one key and returns its URL.
func (h *home) serve(key string) string {
	h.t.Helper()
	sum := sha256.Sum256([]byte(key))
	line, err := json.Marshal(map[string]any{"id": "sdk", "hash": hex.EncodeToString(sum[:]), "host_image": true})
	if err != nil {
		h.t.Fatal(err)
	}
	file := filepath.Join(h.dir, "keys.json")
	if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.command(ctx, "serve", "--listen", "127.0.0.1:0", "--api-key-file", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	found := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		address := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if a := address.FindString(lines.Text()); a != "" {
				select {
				case found <- a:
				default:
				}
			}
		}
	}()
	h.t.Cleanup(func() {
		for _, sb := range h.list() {
			h.run(nil, "rm", "-f", sb.Name)
		}
		cancel()
		<-done
		_ = cmd.Wait()
	})
	select {
	case a := <-found:
		return "http://" + a
	case <-time.After(30 * time.Second):
		h.t.Fatal("serve does not say where it listens")
	}
	return ""
}
