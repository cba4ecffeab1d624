package instance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

const olderID = "sb_aaaaaaaaaaaaaaaaaaaa"

// olderInstance is an instance as a version before package control left it running, with
// a process that does nothing.
func olderInstance(t *testing.T) (h *Backend, dir string, main procid.ID) {
	t.Helper()
	h = &Backend{instances: t.TempDir()}
	dir = filepath.Join(h.instances, olderID)
	must(t, os.MkdirAll(filepath.Join(dir, dirLegacy), 0o700))
	cmd := exec.Command("sleep", "600")
	must(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	main, err := procid.Of(cmd.Process.Pid)
	must(t, err)
	raw, err := json.Marshal(record{Processes: []procid.ID{main}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, fileInstance), raw, 0o600))
	return h, dir, main
}

// listenAt serves a socket, and tells of each request that it was sent.
func listenAt(t *testing.T, path string, answer func(net.Conn)) <-chan string {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	asked := make(chan string, 4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				asked <- r.Method + " " + r.URL.Path
			}
			answer(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return asked
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
}

// hangs answers nothing for as long as the caller stays.
func hangs(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// What an older version started is refused in words that can be pasted, and
// what answers there is not asked for anything.
func TestOlderIsRefused(t *testing.T) {
	h, dir, _ := olderInstance(t)
	asked := listenAt(t, filepath.Join(dir, dirLegacy, fileSocket), says("HTTP/1.1 200 OK\r\n\r\n"))
	_, err := h.Dial(t.Context(), olderID, sandbox.GuestPort)
	for what, err := range map[string]error{"dial": err, "suspend": h.Suspendable(t.Context(), olderID)} {
		e, ok := errors.AsType[*sandbox.Error](err)
		if want := "carboy stop " + olderID + " && carboy start " + olderID; !ok || e.Kind != sandbox.Conflict || len(e.Hint) < len(want) || e.Hint[:len(want)] != want {
			t.Errorf("%s: %#v", what, err)
		}
	}
	if !h.Alive(t.Context(), olderID) {
		t.Error("it is dead while its process lives")
	}
	if len(asked) > 0 {
		t.Errorf("it was asked %q", <-asked)
	}
	must(t, os.WriteFile(filepath.Join(dir, fileKey), make([]byte, 32), 0o600))
	if err := h.Suspendable(t.Context(), olderID); err != nil {
		t.Errorf("one that was started anew: %v", err)
	}
}

func TestOlderIsDead(t *testing.T) {
	h, dir, main := olderInstance(t)
	listenAt(t, filepath.Join(dir, dirLegacy, fileSocket), hangs)
	must(t, kill(t.Context(), main))
	if h.Alive(t.Context(), olderID) {
		t.Error("it is alive without its process")
	}
}

// One request is sent before such an instance is ended, for no longer than the
// caller waits, and to nothing that a link leads to.
func TestSyncOlder(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(net.Conn)
		link   string // "ctl" or "agent.sock": what is a link to a socket of the host's
		ok     bool
	}{
		{"answers", says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "", true},
		{"refuses", says("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "", true},
		{"says-nothing-of-ours", says("hello\r\n\r\n"), "", false},
		{"hangs", hangs, "", false},
		{"endless", func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nA: "))
			for {
				if _, err := c.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, "", false},
		{"linked-directory", says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), dirLegacy, false},
		{"linked-socket", says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), fileSocket, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			at, host := filepath.Join(base, dirLegacy), filepath.Join(base, "host")
			must(t, os.Mkdir(host, 0o700))
			switch tt.link {
			case dirLegacy:
				must(t, os.Symlink(host, at))
			case fileSocket:
				must(t, errors.Join(os.Mkdir(at, 0o700), os.Symlink(filepath.Join(host, fileSocket), filepath.Join(at, fileSocket))))
			default:
				must(t, os.Remove(host))
				must(t, errors.Join(os.Mkdir(at, 0o700), os.Symlink(at, host)))
			}
			asked := listenAt(t, filepath.Join(host, fileSocket), tt.answer)
			limit := patience.For(1500 * time.Millisecond) // it asks within that, and gives up after it
			if tt.ok || tt.name == "says-nothing-of-ours" {
				limit = patience.For(20 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			err := syncLegacy(ctx, base)
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if d := time.Since(start); d > patience.For(7500*time.Millisecond) {
				t.Errorf("it took %v", d)
			}
			if tt.link != "" && len(asked) > 0 {
				t.Errorf("what a link leads to was asked %q", <-asked)
			} else if tt.link == "" {
				if got := <-asked; got != "POST /carboy/sync" {
					t.Errorf("asked %q", got)
				}
			}
		})
	}
}
