package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client/guest"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// socket is where inspect says that the socket of a sandbox is.
func (h *home) socket(name string) string {
	h.t.Helper()
	var boxes []struct {
		Socket string `json:"socket"`
	}
	if err := json.Unmarshal([]byte(h.ok("inspect", "--json", name)), &boxes); err != nil || len(boxes) != 1 {
		h.t.Fatalf("%v: %v", boxes, err)
	}
	return boxes[0].Socket
}

// TestGuestActions has a script of Python, standard library alone, speak the action protocol
// over the socket: commands, archives, a service and a shell, while the daemon is killed
// again and again. A server of the user's on TCP 5005 inside answers meanwhile.
func TestGuestActions(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		h.ok("exec", "-d", "web", "--", "python3", "-c", userServer)
		theirs := h.forward("web", "0:5005").at[0]
		until(t, func() bool { return fetched(theirs) == "the user's own" })

		lines, goOn := h.script(h.socket("web"))
		want := func(line string) {
			t.Helper()
			if got, ok := <-lines; got != line {
				t.Fatalf("the script says %q, %v, want %q", got, ok, line)
			}
		}
		for _, step := range []string{"run", "archives", "refused", "service", "shell"} {
			want(step)
		}
		for range 3 {
			h.killDaemon()
			h.list() // starts another
			until(t, func() bool { return fetched(theirs) == "the user's own" })
		}
		want("read")
		goOn()
		want("done")
		if _, more := <-lines; more {
			t.Error("the script goes on after its end")
		}
	})
}

// userServer answers on TCP 5005, as a program of the user's may.
const userServer = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the user's own")
http.server.ThreadingHTTPServer(("127.0.0.1", 5005), H).serve_forever()
`

// fetched is what a server at an address of this machine answers, "" where none does.
func fetched(at string) string {
	c := http.Client{Timeout: patience.For(10 * time.Second), Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + at + "/")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// script runs testdata/actions.py against a socket, and hands on what it says, line by line,
// and how to end its stdin. That it fails fails the test.
func (h *home) script(socket string) (lines <-chan string, goOn func()) {
	h.t.Helper()
	file, err := filepath.Abs("testdata/actions.py")
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(10*time.Minute))
	cmd := exec.CommandContext(ctx, "python3", "-B", file, socket, "1500")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	var stdin io.Closer
	if err == nil {
		stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	out := make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			out <- s.Text()
		}
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("the script: %v\n%s", err, errs.String())
		}
	}()
	h.t.Cleanup(func() { cancel(); <-done })
	return out, func() { _ = stdin.Close() }
}

// TestGuestClient is our own client of the protocol against the same, two sandboxes at once:
// each reaches its own alone.
func TestGuestClient(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		c := guest.New(guest.System{})
		for _, name := range []string{"one", "two"} {
			h.ok("create", "--name", name, "--isolation", wall)
		}
		at := map[string]guest.Address{}
		for _, name := range []string{"one", "two"} {
			at[name] = guest.Address{Port: action.Port, Socket: h.socket(name)}
			if _, err := c.WriteFile(t.Context(), at[name], "/workspace/name", name); err != nil {
				t.Fatal(err)
			}
		}
		for name, at := range at {
			got, err := c.Exec(t.Context(), at, action.ExecRequest{Command: "cat /workspace/name; exit 7", TimeoutSeconds: 60})
			if err != nil || got.Stdout != name || got.ExitCode != 7 {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		one := at["one"]
		archive := gzipped(t, map[string]string{"a/b": "bytes"})
		if got, err := c.UploadArchive(t.Context(), one, bytes.NewReader(archive), int64(len(archive)), "/workspace/up", time.Minute); err != nil || got.BytesWritten != 5 {
			t.Errorf("upload: %+v, %v", got, err)
		}
		var out bytes.Buffer
		if got, err := c.ExportArchive(t.Context(), one, "/workspace/up", &out, time.Minute); err != nil || got.ArchiveSize != int64(out.Len()) {
			t.Errorf("export: %+v, %v", got, err)
		}
		if _, err := c.OpenShell(t.Context(), one, action.OpenShellRequest{ShellID: "s", CWD: "/workspace", Cols: 80, Rows: 24}); err != nil {
			t.Fatal(err)
		}
		_, err := c.ReadShell(t.Context(), at["two"], action.ReadShellRequest{ShellID: "s", MaxChars: 10})
		if e, told := errors.AsType[*guest.AgentError](err); !told || !strings.Contains(e.Message, "no shell") {
			t.Errorf("a shell of the other sandbox: %v", err)
		}
		if got, err := c.CloseShell(t.Context(), one, "s"); err != nil || !got.Closed {
			t.Errorf("close: %+v, %v", got, err)
		}
	})
}

func gzipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var raw bytes.Buffer
	zip := gzip.NewWriter(&raw)
	w := tar.NewWriter(zip)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

// TestGuestSocketLife: a socket is there for as long as its sandbox runs, whatever becomes of
// the daemon, for its owner alone; nothing is left of it.
func TestGuestSocketLife(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.dir + "/run/carboy/vsock"
		left := func(when string, want ...string) {
			t.Helper()
			var got []string
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				got = append(got, e.Name())
			}
			slices.Sort(want)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s there is %q, %v, want %q", when, got, err, want)
			}
		}
		h.ok("create", "--name", "one", "--isolation", wall)
		h.ok("create", "--name", "two", "--isolation", wall)
		one, two := h.socket("one"), h.socket("two")
		left("with two", filepath.Base(one), filepath.Base(two))
		echoes := func(name string) {
			t.Helper()
			c := guest.New(guest.System{})
			got, err := c.Exec(t.Context(), guest.Address{Port: action.Port, Socket: h.socket(name)}, action.ExecRequest{Command: "echo " + name, TimeoutSeconds: 60})
			if err != nil || got.Stdout != name+"\n" {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		echoes("one")
		echoes("two")
		for _, p := range []struct {
			path string
			mode os.FileMode
		}{{dir, os.ModeDir | 0o700}, {one, os.ModeSocket | 0o600}} {
			if st, err := os.Lstat(p.path); err != nil || st.Mode() != p.mode {
				t.Errorf("%s is %v, %v, want %v", p.path, st, err, p.mode)
			}
		}
		if os.Geteuid() == 0 {
			if theirs, ours := connectAs(54321, one), connectAs(0, one); !errors.Is(theirs, unix.EACCES) || ours != nil {
				t.Errorf("another user: %v; its owner: %v", theirs, ours)
			}
		}

		h.ok("stop", "one")
		left("after a stop", filepath.Base(two))
		if got := h.socket("one"); got != "" {
		}
		h.ok("start", "one")
		echoes("one")

		h.killDaemon()
		if err := os.WriteFile(dir+"/stale.sock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.list() // starts another
		until(t, func() bool { return h.socket("one") != "" && h.socket("two") != "" })
		left("after a kill", filepath.Base(one), filepath.Base(two))
		echoes("one")
		echoes("two")

		h.ok("daemon", "stop")
		left("without a daemon")
		h.list()
		until(t, func() bool { return h.socket("one") != "" })
		echoes("one")

		h.ok("rm", "-f", "one", "two")
		left("after the removal")
	})
}

// connectAs connects as another user, on a thread that is that user's, and ends with it.
func connectAs(uid uintptr, path string) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			failed <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
		}
		failed <- err
	}()
	return <-failed
}

// TestGuestSocketHostile: whatever is said to a socket, the daemon lives, and the next
// connection is served.
func TestGuestSocketHostile(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		socket, pid := h.socket("web"), h.daemonPID()
		for send, want := range map[string]string{
			"CONNECT 5005 \n": "ERR the first line", "CONNECT 49983\n": "ERR port 49983", "CONNECT 70000\n": "ERR port 70000",
			"CONNECT 4294967296\n": "ERR the first line", strings.Repeat("x", 1<<20): "ERR the first line", "\n": "ERR the first line",
			"CONNECT 9\n": "ERR port 9: nothing listens there", "CONNECT 5005\n[]\n": "OK ", "CONNECT 5005\n": "OK ",
		} {
			if got := said(t, socket, send); !strings.HasPrefix(got, want) {
				t.Errorf("%.40q is answered by %q, want %s", send, got, want)
			}
		}
		var silent []net.Conn
		keepSilent := func() {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, c)
		}
		for range 300 { // more than one sandbox may have
			keepSilent()
		}
		until(t, func() bool {
			keepSilent() // for one that gave its place to a question, or waited too long
			return strings.HasPrefix(said(t, socket, "CONNECT 5005\n{}\n"), "ERR too many")
		})
		if got := h.ok("exec", "web", "--", "echo", "alive"); got != "alive\n" {
			t.Errorf("meanwhile exec says %q", got)
		}
		for _, c := range silent {
			_ = c.Close()
		}
		until(t, func() bool { return strings.HasPrefix(said(t, socket, "CONNECT 5005\n{}\n"), "OK ") })
		if now := h.daemonPID(); now != pid {
			t.Errorf("the daemon is %d, and was %d", now, pid)
		}
	})
}

// said is what a socket answers.
func said(t *testing.T, socket, send string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience.For(time.Minute))); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, send) // it may be refused before it was read
	_ = c.(*net.UnixConn).CloseWrite()
	all, _ := io.ReadAll(c) // a reset follows what was refused unread
	return string(all)
}

// TestGuestActionsFromInside: what runs inside, as whichever user, reaches neither the action
// protocol nor the agent, by no address and no socket that it finds. The host does: that is
// the control.
func TestGuestActionsFromInside(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("create", "--name", "web", "--isolation", wall)
		socket := h.socket("web")
		got, err := guest.New(guest.System{}).Exec(t.Context(), guest.Address{Port: action.Port, Socket: socket}, action.ExecRequest{Command: insideCommand, TimeoutSeconds: 60})
		if err != nil || !strings.Contains(got.Stdout, insideAnswer) {
			t.Fatalf("the host: %+v, %v", got, err)
		}
		users := []string{"user"}
		if wall == "gvisor" { // whose root is not the agent
			users = append(users, "root")
		}
		for _, user := range users {
			r := h.run(strings.NewReader(fmt.Sprintf(fromInside, socket, insideCommand)), "exec", "-i", "--user", user, "web", "--", "python3", "-")
			if r.code != 0 || !strings.Contains(r.stdout, "tried ") || strings.Contains(r.stdout, insideAnswer) || strings.Contains(r.stdout, "200") {
				t.Errorf("%s: %+v", user, r)
			}
		}
	})
}

const (
	insideCommand = "echo $((20*300+1))s"
	insideAnswer  = "6001s"
)

// fromInside tries each way to the agent that a program can find, and tells what answers.
const fromInside = `
import glob, os, socket
targets = [(socket.AF_INET, ("127.0.0.1", p)) for p in (5005, 49983)]
targets += [(socket.AF_INET6, ("::1", p)) for p in (5005, 49983)]
if hasattr(socket, "AF_VSOCK"):
    targets += [(socket.AF_VSOCK, (cid, p)) for cid in (0, 1, 2, 3) for p in (5005, 49983)]
names = {%q}
try:
    for line in open("/proc/net/unix"):
        name = line.split()[-1]
        if name.startswith("@"):
            names.add("\0" + name[1:])
        elif name.startswith("/"):
            names.add(name)
except OSError:
    pass
for top in ("/run", "/var", "/tmp", "/workspace", "/home"):
    for dir, _, files in os.walk(top):
        names.update(os.path.join(dir, f) for f in files if "sock" in f)
targets += [(socket.AF_UNIX, n) for n in names]
request = b'{"command": "%s", "timeout_seconds": 20}\n'
for family, at in targets:
    for first in (b"", b"CONNECT 5005\n", b"CONNECT actions.carboy:5005 HTTP/1.1\r\nHost: actions.carboy:5005\r\n\r\n"):
        try:
            s = socket.socket(family, socket.SOCK_STREAM)
            s.settimeout(3)
            s.connect(at)
            s.sendall(first + request)
            print("answer", at, s.recv(4096), s.recv(4096))
        except OSError as e:
            pass
print("tried", len(targets))
`
