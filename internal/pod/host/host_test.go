package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/host"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func TestRuntimeDir(t *testing.T) {
	all := map[string]string{
		"CARBOY_POD_RUNTIME_DIR": "/ours", "INSOMNIA_RUNTIME_DIR": "/theirs", "INSOMNIA_HOME": "/home/of/theirs",
		"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/u", "XDG_CACHE_HOME": "/home/u/c",
	}
	without := func(names ...string) map[string]string {
		env := map[string]string{}
		for name, value := range all {
			env[name] = value
		}
		for _, name := range names {
			name, value, _ := strings.Cut(name, "=")
			env[name] = value
		}
		return env
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string // "": an error
	}{
		{"ours-first", all, "/ours"},
		{"then-theirs", without("CARBOY_POD_RUNTIME_DIR"), "/theirs"},
		{"then-run-in-their-home", without("CARBOY_POD_RUNTIME_DIR", "INSOMNIA_RUNTIME_DIR"), "/home/of/theirs/run"},
		{"then-the-user's", without("CARBOY_POD_RUNTIME_DIR", "INSOMNIA_RUNTIME_DIR", "INSOMNIA_HOME"), "/run/user/7/carboy/pods"},
		{"then-the-cache", without("CARBOY_POD_RUNTIME_DIR", "INSOMNIA_RUNTIME_DIR", "INSOMNIA_HOME", "XDG_RUNTIME_DIR"), "/home/u/c/carboy/run/pods"},
		{"relative", without("CARBOY_POD_RUNTIME_DIR=run"), ""},
		{"their-home-relative", without("CARBOY_POD_RUNTIME_DIR", "INSOMNIA_RUNTIME_DIR", "INSOMNIA_HOME=home"), ""},
	} {
		got, err := host.RuntimeDir(func(name string) string { return tt.env[name] }, 4242)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, p := range []string{filepath.Join(first, "dir"), second} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := func(path string, mode os.FileMode) {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	program(filepath.Join(first, "data"), 0o644)
	program(filepath.Join(second, "data"), 0o755)
	program(filepath.Join(second, "dir"), 0o755)
	program(filepath.Join(first, "both"), 0o755)
	program(filepath.Join(second, "both"), 0o755)
	path := "relative:" + first + "::" + second
	for _, tt := range []struct{ name, ours, theirs, want string }{
		{"absolute", filepath.Join(first, "both"), "", filepath.Join(first, "both")},
		{"by-path", "both", "", filepath.Join(first, "both")},
		{"no-program-there", "data", "", filepath.Join(second, "data")},
		{"a-directory-there", "dir", "", filepath.Join(second, "dir")},
		{"ours-first", "both", "data", filepath.Join(first, "both")},
		{"theirs", "", "data", filepath.Join(second, "data")},
		{"none", "", "", "!there is no program for pods"},
		{"not-found", "nothing", "", `!CARBOY_POD_COMMAND is "nothing", which is in no directory of PATH`},
		{"theirs-not-found", "", "nothing", `!INSOMNIA_POD_COMMAND is "nothing", which is in no directory of PATH`},
		{"relative", "./both", "", `!CARBOY_POD_COMMAND is "./both": neither a name nor an absolute path`},
		{"no-program", filepath.Join(first, "data"), "", "!which is no program that can be started"},
	} {
		env := map[string]string{"CARBOY_POD_COMMAND": tt.ours, "INSOMNIA_POD_COMMAND": tt.theirs, "PATH": path}
		got, err := host.Command(func(name string) string { return env[name] })
		if problem, isError := strings.CutPrefix(tt.want, "!"); isError {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %q, %v; want %s", tt.name, got, err, problem)
			}
		} else if got != tt.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestDir(t *testing.T) {
	base := filepath.Join(t.TempDir(), "run", "pods")
	d := host.DirOf(base, "a", "t1")
	if err := d.Remove(); err != nil {
		t.Errorf("before it was made: %v", err)
	}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	if d.LogPath() != filepath.Join(base, "a", "stderr.log") || d.Socket() != filepath.Join(base, "a", "sock") {
		t.Errorf("%s, %s", d.LogPath(), d.Socket())
	}
	if fi, err := os.Stat(d.Path()); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	// Another start finds it there, and leaves it.
	other := host.DirOf(base, "a", "t2")
	if err := other.Make(); err != nil {
		t.Fatal(err)
	}
	if other.LogPath() == d.LogPath() {
		t.Error("the log is in another's directory")
	}
	for range 2 {
		if err := other.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.Socket(), nil, 0o600); err != nil {
		t.Fatalf("another's directory went: %v", err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// child is a record of a pod that is to be, and how it is launched.
func child(t *testing.T, name string) (record.Pod, pod.Launch) {
	t.Helper()
	base, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	d := host.DirOf(base, name, "token-of-"+name)
	p := record.Pod{
		Name: name, State: record.Reserved, Token: "token-of-" + name, Dir: d.Path(), Socket: d.Socket(), Callback: "/cb",
		Allow: []scope.Rule{{Target: "/w", Permission: scope.Write, Recursive: true}},
	}
	return p, pod.Launch{Config: pod.Config{Name: name, Callback: "/cb", Socket: p.Socket, Scope: p.Allow}, Cwd: base}
}

// script makes a program of shell.
func script(t *testing.T, text string) *host.Backend {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return host.New(host.Options{
		Getenv: func(name string) string { return map[string]string{"CARBOY_POD_COMMAND": path}[name] },
		Env:    []string{"PATH=" + os.Getenv("PATH"), "MARK=here"},
	})
}

// told waits for the text that a child wrote into a pipe.
func told(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "told")) // a pipe: until all who write have closed it
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func pipe(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mkfifo(filepath.Join(dir, "told"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStart: how the program is called, what is in its environment, and where it is.
func TestStart(t *testing.T) {
	p, l := child(t, "a")
	pipe(t, l.Cwd)
	b := script(t, `echo oops >&2
{ pwd; echo "$1 $2 $3 $4"; echo "$CARBOY_POD_TOKEN $CARBOY_POD_RUNTIME_DIR $INSOMNIA_RUNTIME_DIR $MARK"; set -- $(cat /proc/$$/stat); [ $5 = $$ ] && echo leads; readlink /proc/$$/fd/0 /proc/$$/fd/1; } >told
exec sleep 1000
`)
	started, err := b.Start(t.Context(), p, l)
	if err != nil {
		t.Fatal(err)
	}
	p.Process = started.Process
	base := filepath.Dir(p.Dir)
	want := base + "\n" + `--adopt --callback /cb --spawn-config-json
token-of-a ` + base + " " + base + " here\nleads\n/dev/null\n"
	if got := told(t, l.Cwd); !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	name, tail := b.Stderr(p)
	if name != filepath.Join(p.Dir, "stderr.log") || string(tail) != "oops\n" {
		t.Errorf("%s: %q", name, tail)
	}
	if !procid.Alive(p.Process) {
		t.Error("it does not run")
	}
	for range 2 { // twice is as once
		if err := b.End(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	b.Wait()
	if procid.Alive(p.Process) {
		t.Error("it runs")
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 1 { // the pipe
		t.Errorf("%v, %v are left", left, err)
	}
}

// TestEndFindsAll: also what left the group and the session, whose parent has gone, and where the
// daemon died before it could note a number. The control: another's token ends nothing.
func TestEndFindsAll(t *testing.T) {
	p, l := child(t, "a")
	pipe(t, l.Cwd)
	b := script(t, `setsid sh -c 'echo $$ >told; exec sleep 1000' >/dev/null 2>&1 &
exit 0
`)
	started, err := b.Start(t.Context(), p, l)
	if err != nil {
		t.Fatal(err)
	}
	b.Wait() // the first process is gone
	var pid int
	if _, err := fmt.Sscan(told(t, l.Cwd), &pid); err != nil {
		t.Fatal(err)
	}
	far, err := procid.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	stranger := p
	stranger.Token = "token-of-another"
	stranger.Process = started.Process // a number that may be used again
	if err := b.End(t.Context(), stranger); err != nil || !procid.Alive(far) {
		t.Fatalf("another's end: %v; alive: %v", err, procid.Alive(far))
	}
	if err := b.End(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if procid.Alive(far) {
		t.Error("what left the group is alive")
	}
}

// TestEndFindsWhoIsBeingExecuted: for a moment of each exec a process shows no environment.
func TestEndFindsWhoIsBeingExecuted(t *testing.T) {
	for range 20 {
		p, l := child(t, "a")
		b := script(t, `exec "$0"`) // and so on
		started, err := b.Start(t.Context(), p, l)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.End(t.Context(), p); err != nil { // by the token alone
			t.Fatal(err)
		}
		if procid.Alive(started.Process) {
			p.Process = started.Process
			t.Fatalf("it was not found; %v", b.End(t.Context(), p))
		}
		b.Wait()
	}
}

// withoutEnvironment has the test binary take the pages of its environment away, as gVisor's processes
// do, say that it has, and wait for the end of its standard input.
const withoutEnvironment = "CARBOY_TEST_WITHOUT_ENVIRONMENT"

func TestMain(m *testing.M) {
	if os.Getenv(withoutEnvironment) != "" {
		b, err := os.ReadFile("/proc/self/stat")
		fields := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
		from, ferr := strconv.ParseUint(fields[47], 10, 64)
		to, terr := strconv.ParseUint(fields[48], 10, 64)
		if errors.Join(err, ferr, terr) != nil {
			os.Exit(1)
		}
		const page = 4096
		from, to = (from+page-1)/page*page, to/page*page
		if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(from), uintptr(to-from), 0); e != 0 {
			os.Exit(1)
		}
		fmt.Println("gone")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestEndAmidOthers: a process that has no environment any more, of which gVisor has many, is in
// nobody's way.
func TestEndAmidOthers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(self)
	other.Env = []string{withoutEnvironment + "=1", "A=" + strings.Repeat("a", 64<<10)}
	in, ierr := other.StdinPipe()
	out, oerr := other.StdoutPipe()
	if err := errors.Join(ierr, oerr, other.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "gone\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	p, l := child(t, "a")
	b := script(t, "sleep 1000")
	started, err := b.Start(t.Context(), p, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.End(t.Context(), p); err != nil || procid.Alive(started.Process) {
		t.Errorf("%v, alive: %v", err, procid.Alive(started.Process))
	}
	b.Wait()
}

// TestStderrTail: of much the last 4 KiB.
func TestStderrTail(t *testing.T) {
	p, l := child(t, "a")
	b := script(t, `i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done >&2`)
	if _, err := b.Start(t.Context(), p, l); err != nil {
		t.Fatal(err)
	}
	b.Wait()
	if _, tail := b.Stderr(p); len(tail) != 4096 || !strings.HasSuffix(string(tail), "line 1999\n") {
		t.Errorf("%d bytes, to %q", len(tail), tail[max(0, len(tail)-20):])
	}
	if err := b.End(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, tail := b.Stderr(p); tail != nil {
		t.Errorf("after the end: %q", tail)
	}
}

// TestStartFails: nothing is left.
func TestStartFails(t *testing.T) {
	p, l := child(t, "a")
	broken := filepath.Join(l.Cwd, "broken")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]sandbox.Kind{"": sandbox.Unsupported, "no-such-program": sandbox.Invalid, broken: sandbox.Invalid} {
		b := host.New(host.Options{Getenv: func(name string) string {
			return map[string]string{"CARBOY_POD_COMMAND": command, "PATH": os.Getenv("PATH")}[name]
		}})
		if _, err := b.Start(t.Context(), p, l); sandbox.KindOf(err) != want {
			t.Errorf("%q: %v", command, err)
		}
	}
	if left, err := os.ReadDir(l.Cwd); err != nil || len(left) != 1 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// TestDial tells who is there from who is not, and from what can't be found out.
func TestDial(t *testing.T) {
	p, l := child(t, "a")
	b := script(t, "")
	live := func(want wire.Liveness) {
		t.Helper()
		c, err := b.Dial(t.Context(), p)
		if got := wire.LivenessOf(err); got != want {
			t.Errorf("%v (%v), want %v", got, err, want)
		}
		if c != nil {
			c.Close()
		}
	}
	live(wire.Gone) // no directory
	if err := host.DirOf(l.Cwd, "a", p.Token).Make(); err != nil {
		t.Fatal(err)
	}
	live(wire.Gone) // no socket
	s, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.Socket})
	if err != nil {
		t.Fatal(err)
	}
	live(wire.Alive)
	if err := os.Chmod(p.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	live(wire.Unknown) // anybody may have bound it
	if err := os.Chmod(p.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.SetUnlinkOnClose(false)
	s.Close()
	live(wire.Gone) // nobody listens
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("late"))
	if _, err := b.Dial(ctx, p); err == nil {
		t.Error("dialled although it was late")
	}
}
