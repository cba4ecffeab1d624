package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// e2bWalls are those that E2B's clients are tried over.
var e2bWalls = []string{"gvisor", "process"}

// overProcess are the programs that make test runs over the one wall: the rest, over the other,
// takes as long.
var overProcess = []string{"cli", "interpreter", "mcp", "process", "template-from"}

// runsOver reports whether a program is run over a wall.
func runsOver(wall, program string) bool {
	return long.On() || (wall == "process") == slices.Contains(overProcess, program)
}

// TestE2B runs every program of test/e2b, which drive what E2B publishes, unmodified,
// over TCP with a key: in make test over one of the walls, in make test-long over each. A
// wall has one daemon for all of them. The walls are tried side by side, for much of it is
// waiting. What is in sandbox.test.mjs is run by the SDK of the minor before, too.
func TestE2B(t *testing.T) {
	if _, err := os.Stat("../e2b/node_modules/e2b-next"); err != nil {
		t.Fatal("the SDKs are not installed: make deps")
	}
	files, err := filepath.Glob("../e2b/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	for _, wall := range e2bWalls {
		t.Run(wall, func(t *testing.T) {
			t.Parallel()
			s := newE2BServer(t, wall)
			for _, file := range files {
				name := strings.TrimSuffix(filepath.Base(file), ".test.mjs")
				if !runsOver(wall, name) {
					continue
				}
				t.Run(name, func(t *testing.T) { s.node(t, file, "e2b") })
				if name == "sandbox" && (wall == "gvisor" || long.On()) {
					t.Run(name+"-previous", func(t *testing.T) { s.node(t, file, "e2b-next") })
				}
			}
			if !runsOver(wall, "template-from") {
				return
			}
			// Templates were built of images for which a password was given.
			if found := s.h.holding("private/small"); len(found) == 0 {
				t.Error("no file has the name of such an image: the search finds nothing")
			}
			if found := s.h.holding(registryPassword); len(found) > 0 {
				t.Errorf("the password of a registry is in %q", found)
			}
		})
	}
}

// e2bServer is a daemon as E2B's clients see one. It lives in a world, of
// which one.example and two.example are servers.
type e2bServer struct {
	h    *home
	wall string
	env  []string
}

func newE2BServer(t *testing.T, wall string) *e2bServer {
	t.Helper()
	return newE2BServerWith(t, wall, nil)
}

// newE2BServerWith is newE2BServer with further settings of the daemon.
func newE2BServerWith(t *testing.T, wall string, settings map[string]any) *e2bServer {
	t.Helper()
	const domain = "carboy.test"
	w := newWorld(t)
	for name, address := range map[string]string{"one.example": worldA, "two.example": worldB} {
		w.https(name, address, e2bPeer(name))
	}
	registries := w.registries()
	h := w.home()
	all := map[string]any{"resolvers": []string{worldDNS + ":53"}, "domain": domain, "e2b_isolation": wall, "weakest_isolation": wall}
	all["mcp_servers"] = map[string]any{"everything": map[string]any{ // where mcp.test.mjs puts it
		"run": []string{"node", "/srv/server/node_modules/@modelcontextprotocol/server-everything/dist/index.js"},
	}}
	all["limits"] = map[string]any{"key:limited": map[string]any{"sandboxes": 1, "cpus": 2, "timeout": "1h"}}
	maps.Copy(all, settings)
	h.settings(all)
	key := newE2BKey()
	url := h.serve(key)
	limited := strings.TrimSpace(h.ok("key", "add", "--team", "limited", "--host-image", "--scope", "read,manage,exec,keys", "test"))
	return &e2bServer{h: h, wall: wall, env: append(os.Environ(),
		"E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_VOLUME_API_URL="+url, "E2B_API_KEY="+key, "E2B_DOMAIN="+domain, "CARBOY_WALL="+wall, "CARBOY_LIMITED_KEY="+limited,
		"CARBOY_REGISTRY="+registries.open, "CARBOY_PRIVATE_REGISTRY="+registries.private, "CARBOY_REGISTRY_PASSWORD="+registryPassword)}
}

// newE2BKey returns a key as E2B's clients want one.
func newE2BKey() string {
	var secret [20]byte
	rand.Read(secret[:])
	return "e2b_" + hex.EncodeToString(secret[:])
}

// settings writes the daemon's configuration.
func (h *home) settings(all map[string]any) {
	h.t.Helper()
	config, err := json.Marshal(all)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "config", "carboy", "config.json"), config, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// e2bPeer answers with its name and whether the request has the header X-Key;
// at /which with the hash of that, for the gate takes the value out of answers;
// at /endless it does not end by itself.
func e2bPeer(name string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		text := "hello from " + name
		if r.Header.Get("X-Key") != "" {
			text += ", with a key"
		}
		if r.URL.Path == "/which" {
			text = fmt.Sprintf("%x", sha256.Sum256([]byte(r.Header.Get("X-Key"))))
		}
		_, _ = io.WriteString(rw, text+"\n")
		if r.URL.Path == "/endless" {
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // it is not to look whole
		}
	})
}

// nodeLimit is for one program over one wall.
const nodeLimit = 5 * time.Minute

var nodeCount = regexp.MustCompile(`(?m)^ℹ (tests|skipped|todo) (\d+)$`)

// node runs one program with one SDK. One that runs no test, or leaves one
// out, fails as one whose tests fail does.
func (s *e2bServer) node(t *testing.T, file, sdk string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(nodeLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", file)
	cmd.Env = append(slices.Clone(s.env), "CARBOY_E2B_SDK="+sdk)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := s.h.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("%s", out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]string{}
	for _, m := range nodeCount.FindAllStringSubmatch(out.String(), -1) {
		count[m[1]] = m[2]
	}
	if n := count["tests"]; n == "" || n == "0" || count["skipped"] != "0" || count["todo"] != "0" {
		t.Errorf("it ran not every test that it has: %v", count)
	}
}

// serve runs `carboy serve` on a free port with one key and returns its URL.
func (h *home) serve(key string) string {
	h.t.Helper()
	return "http://" + h.serveOn("127.0.0.1:0", key)
}

// serveOn is serve at an address, which it returns with its port.
func (h *home) serveOn(address, key string) string {
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
	return h.listen("serve", "--listen", address, "--api-key-file", file)
}

// listen runs a command that serves until the test's end, and returns the
// address of the machine's own that it says first.
func (h *home) listen(args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.command(ctx, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second // it ends the boxes of its pool
	stderr, err := cmd.StderrPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.start(cmd); err != nil {
		h.t.Fatal(err)
	}
	found := make(chan string, 1)
	done := make(chan struct{})
	var said strings.Builder // to be read after done
	go func() {
		defer close(done)
		address := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
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
		return a
	case <-done:
		h.t.Fatalf("carboy %q ended:\n%s", args, said.String())
	case <-time.After(patience.For(30 * time.Second)):
		h.t.Fatalf("carboy %q does not say where it listens", args)
	}
	return ""
}
