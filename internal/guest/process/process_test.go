package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Args[0] == jail.InitName {
		os.Exit(jail.Init())
	}
	os.Exit(m.Run())
}

// world is an engine with its services behind a real server.
type world struct {
	t      testing.TB
	engine *process.Engine
	url    string
	exec   guestv1connect.ExecServiceClient
}

type setup struct {
	cgroups bool // else marks
	deny    bool // no root
	disks   []string
}

func open(t testing.TB, s setup) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	var tree *cgroup.Tree
	if s.cgroups {
		tree = cgroups(t)
	}
	j, err := jail.Start(jail.Config{PIDNamespace: true, Marked: tree == nil})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	e, err := process.New(process.Options{
		Spawner: j, Cgroups: tree, AllowRoot: !s.deny, DiskPaths: s.disks,
		Lookup: func(name string) (account.Account, error) {
			switch name {
			case "user":
				return account.Account{Name: name, UID: 1000, GID: 1000, Home: "/tmp", Shell: "/bin/sh"}, nil
			case "root":
				return account.Account{Name: name, Home: "/", Shell: "/bin/sh"}, nil
			}
			return account.Account{}, errors.New("nobody knows them")
		},
		Defaults: func() process.Defaults {
			return process.Defaults{User: "user", Cwd: "/", Env: map[string]string{"FROM": "sandbox", "BOTH": "sandbox"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	mux := http.NewServeMux()
	e.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return &world{t: t, engine: e, url: srv.URL, exec: guestv1connect.NewExecServiceClient(srv.Client(), srv.URL)}
}

// cgroups makes a tree in this machine's hierarchy.
func cgroups(t testing.TB) *cgroup.Tree {
	t.Helper()
	root := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
		}
	}
	if root == "" {
		t.Skip("no cgroup v2 here")
	}
	dir, err := os.MkdirTemp(root, "carboy-test-")
	if err != nil {
		t.Skip(err)
	}
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	tree, err := cgroup.Prepare(base, cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Close()
		if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			t.Error(err)
		}
		if err := unix.Rmdir(dir); err != nil {
			t.Error(dir, err)
		}
	})
	return tree
}

// both runs a test with cgroups and with marks.
func both(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("cgroups", func(t *testing.T) { f(t, open(t, setup{cgroups: true})) })
	t.Run("marks", func(t *testing.T) { f(t, open(t, setup{})) })
}

// result is what a stream of events came to.
type result struct {
	pid            uint32
	stdout, stderr bytes.Buffer
	dropped        []*guestv1.Event_Dropped
	exit           *guestv1.Exit
}

// collect reads a stream to its end, or until enough says so.
func collect(t testing.TB, stream *connect.ServerStreamForClient[guestv1.Event], err error, enough func(*result) bool) (*result, error) {
	t.Helper()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	r := &result{}
	for stream.Receive() {
		if r.exit != nil {
			t.Errorf("after the exit: %v", stream.Msg())
		}
		switch ev := stream.Msg().GetEvent().(type) {
		case *guestv1.Event_Started_:
			r.pid = ev.Started.GetPid()
		case *guestv1.Event_Output_:
			to := &r.stdout
			if ev.Output.GetStream() == guestv1.Stream_STREAM_STDERR {
				to = &r.stderr
			}
			to.Write(ev.Output.GetData())
		case *guestv1.Event_Dropped_:
			r.dropped = append(r.dropped, ev.Dropped)
		case *guestv1.Event_Exit:
			r.exit = ev.Exit
		}
		if enough != nil && enough(r) {
			return r, nil
		}
	}
	if err := stream.Err(); err != nil {
		return r, err
	}
	if r.exit == nil {
		t.Error("the stream ended without an exit")
	}
	return r, nil
}

func (w *world) start(id string, c *guestv1.Command, enough func(*result) bool) (*result, error) {
	stream, err := w.exec.Start(w.t.Context(), connect.NewRequest(&guestv1.StartRequest{Id: id, Command: c}))
	return collect(w.t, stream, err, enough)
}

func (w *world) run(id string, c *guestv1.Command) *result {
	w.t.Helper()
	r, err := w.start(id, c, nil)
	if err != nil {
		w.t.Fatalf("%s: %v", id, err)
	}
	return r
}

func sh(script string) *guestv1.Command {
	return &guestv1.Command{Argv: []string{"sh", "-c", script}}
}

// until is enough once stdout holds a text.
func until(text string) func(*result) bool {
	return func(r *result) bool { return strings.Contains(r.stdout.String(), text) }
}

func TestExitCodes(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for code := range 256 {
			r := w.run(fmt.Sprint("code-", code), sh(fmt.Sprint("exit ", code)))
			if r.exit.GetCode() != int32(code) || r.exit.GetReason() != guestv1.Reason_REASON_EXITED || r.exit.GetSignal() != 0 {
				t.Errorf("exit %d: %v", code, r.exit)
			}
		}
	})
}

func TestSignals(t *testing.T) {
	w := open(t, setup{cgroups: true})
	for _, sig := range []int32{1, 2, 3, 6, 9, 11, 15} {
		r := w.run(fmt.Sprint("signal-", sig), sh(fmt.Sprint("kill -", sig, " $$")))
		if r.exit.GetCode() != 128+sig || r.exit.GetSignal() != sig || r.exit.GetReason() != guestv1.Reason_REASON_SIGNALLED {
			t.Errorf("signal %d: %v", sig, r.exit)
		}
	}
}

func TestCommand(t *testing.T) {
	w := open(t, setup{cgroups: true})
	tests := []struct {
		name string
		cmd  *guestv1.Command
		want string
	}{
		{"environment", &guestv1.Command{
			Argv: []string{"env"}, Env: map[string]string{"BOTH": "command", "OWN": "x y\n'\""},
		}, "BOTH=command\nFROM=sandbox\nHOME=/tmp\nLOGNAME=user\nOWN=x y\n'\"\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSHELL=/bin/sh\nUSER=user\n"},
		{"argv", &guestv1.Command{Argv: []string{"printf", "%s|", "a b", "", "$(x)"}}, "a b||$(x)|"},
		{"default-user", sh("id -u"), "1000\n"},
		{"root", &guestv1.Command{Argv: []string{"id", "-u"}, User: "root"}, "0\n"},
		{"start-directory", sh("pwd"), "/\n"},
		{"directory", &guestv1.Command{Argv: []string{"pwd"}, Cwd: "/usr/bin"}, "/usr/bin\n"},
		{"relative-directory", &guestv1.Command{Argv: []string{"pwd"}, Cwd: "usr/../usr"}, "/usr\n"},
		{"home", &guestv1.Command{Argv: []string{"pwd"}, Cwd: "~"}, "/tmp\n"},
		{"stdin-is-null", sh("cat; readlink /proc/self/fd/0"), "/dev/null\n"},
		{"own-stdout-again", sh("echo again >/dev/stdout"), "again\n"},
		{"descriptors", sh("exec ls /proc/self/fd"), "0\n1\n2\n3\n"},
		{"pid", sh("echo $$"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := w.run(tt.name, tt.cmd)
			want := tt.want
			if tt.name == "pid" {
				want = fmt.Sprintln(r.pid)
			}
			if got := r.stdout.String(); got != want || r.exit.GetCode() != 0 {
				t.Errorf("got %q, %v; want %q; stderr %q", got, r.exit, want, r.stderr.String())
			}
		})
	}
}

func TestNotStarted(t *testing.T) {
	w := open(t, setup{cgroups: true})
	big := strings.Repeat("x", 131_072)
	many := slices.Repeat([]string{strings.Repeat("y", 100_000)}, 30)
	tests := []struct {
		name string
		cmd  *guestv1.Command
		code int32
		text string
	}{
		{"not-found", &guestv1.Command{Argv: []string{"no-such-tool"}}, 127, "no-such-tool: command not found"},
		{"no-file", &guestv1.Command{Argv: []string{"/no/such"}}, 127, "/no/such: no such file"},
		{"not-executable", &guestv1.Command{Argv: []string{"/etc/passwd"}}, 126, "/etc/passwd: permission denied"},
		{"no-directory", &guestv1.Command{Argv: []string{"true"}, Cwd: "/no/such"}, 126, "working directory /no/such: no such file or directory"},
		{"long-argument", &guestv1.Command{Argv: []string{"true", big}}, 126, "argument 1 is 131072 bytes long; the kernel takes at most 131071"},
		{"long-variable", &guestv1.Command{Argv: []string{"true"}, Env: map[string]string{"V": big}}, 126, "environment variable V is 131072 bytes long"},
		{"too-many", &guestv1.Command{Argv: append([]string{"true"}, many...)}, 126, "together; the kernel takes at most 2097152"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := w.run(tt.name, tt.cmd)
			if r.exit.GetReason() != guestv1.Reason_REASON_NOT_STARTED || r.exit.GetCode() != tt.code || !strings.Contains(r.exit.GetError(), tt.text) {
				t.Errorf("got %v, want %d, %q", r.exit, tt.code, tt.text)
			}
		})
	}
	// What fits does start.
	r := w.run("fits", &guestv1.Command{Argv: []string{"sh", "-c", "echo ${#0}", big[:131_071]}})
	if got := r.stdout.String(); got != "131071\n" {
		t.Errorf("the longest argument: %q, %v", got, r.exit)
	}
}

func TestRefused(t *testing.T) {
	w := open(t, setup{deny: true, cgroups: true})
	tests := []struct {
		name, id string
		cmd      *guestv1.Command
		want     connect.Code
	}{
		{"no-command", "a", nil, connect.CodeInvalidArgument},
		{"no-program", "a", &guestv1.Command{}, connect.CodeInvalidArgument},
		{"empty-program", "a", &guestv1.Command{Argv: []string{""}}, connect.CodeInvalidArgument},
		{"zero-byte", "a", &guestv1.Command{Argv: []string{"echo", "a\x00b"}}, connect.CodeInvalidArgument},
		{"bad-variable", "a", &guestv1.Command{Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}}, connect.CodeInvalidArgument},
		{"no-id", "", sh("true"), connect.CodeInvalidArgument},
		{"bad-id", "a/b", sh("true"), connect.CodeInvalidArgument},
		{"long-id", strings.Repeat("a", 65), sh("true"), connect.CodeInvalidArgument},
		{"unknown-user", "a", &guestv1.Command{Argv: []string{"true"}, User: "who"}, connect.CodeInvalidArgument},
		{"root", "a", &guestv1.Command{Argv: []string{"true"}, User: "root"}, connect.CodePermissionDenied},
		{"huge-terminal", "a", &guestv1.Command{Argv: []string{"true"}, Terminal: &guestv1.Terminal{Cols: 1 << 20}}, connect.CodeInvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.start(tt.id, tt.cmd, nil)
			if got := connect.CodeOf(err); err == nil || got != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	// Nothing was left under the id.
	if r := w.run("a", sh("echo free")); r.stdout.String() != "free\n" {
		t.Errorf("got %q", r.stdout.String())
	}
}

// A Start that is sent again finds the same command, from its beginning.
func TestStartTwice(t *testing.T) {
	w := open(t, setup{cgroups: true})
	var wg sync.WaitGroup
	outs := make([]string, 8)
	for i := range outs {
		wg.Go(func() {
			r, err := w.start("same", sh("echo $$; cat /proc/sys/kernel/random/uuid"), nil)
			if err != nil {
				t.Error(err)
				return
			}
			outs[i] = r.stdout.String()
		})
	}
	wg.Wait()
	for _, out := range outs {
		if out == "" || out != outs[0] {
			t.Errorf("got %q and %q", outs[0], out)
		}
	}
}

// A reader who comes back by offset misses nothing and sees nothing twice.
func TestFollow(t *testing.T) {
	w := open(t, setup{cgroups: true})
	script := "for i in $(seq 1 20000); do echo line $i; done; echo oops >&2; exit 4"
	var want bytes.Buffer
	for i := 1; i <= 20000; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	cmd := sh(script)
	cmd.OrphanGraceMs = 60_000
	r, err := w.start("f", cmd, func(r *result) bool { return r.stdout.Len() > 1000 })
	if err != nil {
		t.Fatal(err)
	}
	got, stderr := r.stdout, r.stderr
	for round := 0; r.exit == nil; round++ {
		if round > 10_000 {
			t.Fatal("no end")
		}
		stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{
			Id: "f", StdoutOffset: uint64(got.Len()), StderrOffset: uint64(stderr.Len()),
		}))
		r, err = collect(t, stream, err, func(r *result) bool { return r.stdout.Len() > 10_000 })
		if err != nil {
			t.Fatal(err)
		}
		if r.dropped != nil {
			t.Fatalf("dropped %v", r.dropped)
		}
		got.Write(r.stdout.Bytes())
		stderr.Write(r.stderr.Bytes())
	}
	if got.String() != want.String() || stderr.String() != "oops\n" || r.exit.GetCode() != 4 {
		t.Errorf("got %d bytes, want %d; stderr %q; %v", got.Len(), want.Len(), stderr.String(), r.exit)
	}
	// The end stays readable.
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "f"}))
	if r, err = collect(t, stream, err, nil); err != nil || r.exit.GetCode() != 4 || r.stdout.String() != want.String() {
		t.Errorf("again: %v, %v", r.exit, err)
	}
}

func TestUnknown(t *testing.T) {
	w := open(t, setup{cgroups: true})
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "nope"}))
	if _, err = collect(t, stream, err, nil); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("Follow: %v", err)
	}
	if _, err := w.exec.Get(t.Context(), connect.NewRequest(&guestv1.GetRequest{Id: "nope"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("Get: %v", err)
	}
}

// A gibibyte through a reader who takes its time: all of it arrives, and
// neither side holds more than a little of it.
func TestManyBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("moves a gibibyte")
	}
	w := open(t, setup{cgroups: true})
	const want = 1 << 30
	stream, err := w.exec.Start(t.Context(), connect.NewRequest(&guestv1.StartRequest{
		Id: "much", Command: &guestv1.Command{Argv: []string{"head", "-c", strconv.Itoa(want), "/dev/zero"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got, peak := 0, uint64(0)
	var exit *guestv1.Exit
	for n := 0; stream.Receive(); n++ {
		got += len(stream.Msg().GetOutput().GetData())
		if e := stream.Msg().GetExit(); e != nil {
			exit = e
		}
		if n%512 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
	}
	if err := stream.Err(); err != nil || got != want || exit.GetCode() != 0 {
		t.Errorf("got %d bytes, %v, %v", got, exit, err)
	}
	if limit := uint64(64 << 20); peak > limit {
		t.Errorf("the heap grew to %d bytes, more than %d", peak, limit)
	}
}

func TestBinaryOutput(t *testing.T) {
	w := open(t, setup{cgroups: true})
	r := w.run("bin", sh(`i=0; while [ $i -lt 256 ]; do printf "\\$(printf %03o $i)"; i=$((i+1)); done; printf '\377\376' >&2`))
	var want []byte
	for i := range 256 {
		want = append(want, byte(i))
	}
	if !bytes.Equal(r.stdout.Bytes(), want) || r.stderr.String() != "\xff\xfe" {
		t.Errorf("got %q and %q", r.stdout.Bytes(), r.stderr.Bytes())
	}
}

func TestManyAtOnce(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				r, err := w.start(fmt.Sprint("many-", i), sh(fmt.Sprintf("sleep 0.2; echo %d; exit %d", i, i%256)), nil)
				if err != nil || r.stdout.String() != fmt.Sprintln(i) || r.exit.GetCode() != int32(i%256) {
					t.Errorf("%d: %v, %v", i, r, err)
				}
			})
		}
		wg.Wait()
	})
}

// The exit is told when the main process ends, though others hold its pipes,
// and all of its own output comes before.
func TestBackground(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		r := w.run("bg", sh("(while :; do sleep 0.05; echo late; done) & head -c 60000 /dev/zero | tr '\\0' x; exit 5"))
		if r.exit.GetCode() != 5 || bytes.Count(r.stdout.Bytes(), []byte("x")) != 60000 {
			t.Errorf("%v, %d bytes", r.exit, r.stdout.Len())
		}
		// What is left goes on, and its output is kept.
		before := r.stdout.Len()
		for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			p := w.get("bg")
			if p.GetStdoutBytes() > uint64(before) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing more was journalled")
			}
		}
		w.signal("bg", 9, true, "test")
		if n := alive(t, "sh\x00-c\x00(while :"); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// alive counts processes whose command line begins so.
func alive(t testing.TB, cmdline string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && bytes.HasPrefix(text, []byte(cmdline)) {
			n++
		}
	}
	return n
}

func (w *world) get(id string) *guestv1.Process {
	w.t.Helper()
	res, err := w.exec.Get(w.t.Context(), connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg.GetProcess()
}

func (w *world) signal(id string, sig int32, all bool, by string) {
	w.t.Helper()
	_, err := w.exec.Signal(w.t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: id, Signal: sig, All: all, By: by}))
	if err != nil {
		w.t.Error(err)
	}
}

// Double forks and sessions of their own do not outlive a time limit or a
// kill. Without one they live on.
func TestNothingEscapes(t *testing.T) {
	script := func(n int) string {
		return fmt.Sprintf("(setsid sh -c 'sleep 9%d & setsid sleep 9%d & exec sleep 9%d' &) ; sleep 0.1; echo up; ", n, n, n)
	}
	count := func(t *testing.T, n int) int { return alive(t, fmt.Sprintf("sleep\x009%d\x00", n)) }
	both(t, func(t *testing.T, w *world) {
		base := os.Getpid() * 10
		if r := w.run("lives", sh(script(base+1))); r.exit.GetCode() != 0 || count(t, base+1) != 3 {
			t.Errorf("after a normal end: %v, %d left, want 3", r.exit, count(t, base+1))
		}
		w.signal("lives", 9, true, "test")
		if n := count(t, base+1); n != 0 {
			t.Errorf("killed after the end: %d left", n)
		}

		cmd := sh(script(base+2) + "sleep 1000")
		cmd.TimeoutMs = 700
		r := w.run("timeout", cmd)
		if r.exit.GetReason() != guestv1.Reason_REASON_TIMED_OUT || r.exit.GetCode() != 137 {
			t.Errorf("timeout: %v", r.exit)
		}
		eventually(t, "timeout leaves processes", func() bool { return count(t, base+2) == 0 })

		if _, err := w.start("killed", sh(script(base+3)+"sleep 1000"), until("up")); err != nil {
			t.Fatal(err)
		}
		w.signal("killed", 9, true, "someone")
		if n := count(t, base+3); n != 0 {
			t.Errorf("killed: %d left", n)
		}
		eventually(t, "no exit", func() bool { return w.get("killed").GetExit() != nil })
		if e := w.get("killed").GetExit(); e.GetReason() != guestv1.Reason_REASON_KILLED || e.GetKilledBy() != "someone" {
			t.Errorf("killed: %v", e)
		}
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestSignalReaches(t *testing.T) {
	w := open(t, setup{cgroups: true})
	if _, err := w.start("trap", sh("trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.05; done"), until("up")); err != nil {
		t.Fatal(err)
	}
	w.signal("trap", 15, false, "me")
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "trap"}))
	r, err := collect(t, stream, err, nil)
	if err != nil || r.stdout.String() != "up\ngot\n" || r.exit.GetReason() != guestv1.Reason_REASON_EXITED || r.exit.GetCode() != 3 {
		t.Errorf("%q, %v, %v", r.stdout.String(), r.exit, err)
	}
	for _, sig := range []int32{0, -1, 65} {
		_, err := w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "trap", Signal: sig}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("signal %d: %v", sig, err)
		}
	}
	_, err = w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "trap", Signal: 15}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("after the end: %v", err)
	}
}

// A command whose follower left waits, loses nothing, and goes in the end.
func TestOrphan(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cmd := sh("echo up; exec yes")
		cmd.OrphanGraceMs = 300
		if _, err := w.start("orphan", cmd, until("up")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an orphan lives on", func() bool { return w.get("orphan").GetExit() != nil })
		if e := w.get("orphan").GetExit(); e.GetReason() != guestv1.Reason_REASON_KILLED || e.GetKilledBy() != process.Orphan {
			t.Errorf("exit %v", e)
		}
	})
}

func (w *world) write(id string, offset uint64, data string, eof bool) (uint64, error) {
	res, err := w.exec.WriteInput(w.t.Context(), connect.NewRequest(&guestv1.WriteInputRequest{
		Id: id, Offset: offset, Data: []byte(data), Eof: eof,
	}))
	if err != nil {
		return 0, err
	}
	return res.Msg.GetAcked(), nil
}

func TestInput(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("echo up; cat; echo end")
	cmd.Stdin = true
	if _, err := w.start("in", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		offset uint64
		data   string
		eof    bool
		acked  uint64
		code   connect.Code
	}{
		{0, "hello", false, 5, 0},
		{0, "hello", false, 5, 0},  // sent again
		{3, "lo wor", false, 9, 0}, // overlapping
		{20, "gap", false, 0, connect.CodeOutOfRange},
		{9, "ld\n", true, 12, 0},
		{9, "ld\n", true, 12, 0}, // the end, sent again
		{12, "more", false, 0, connect.CodeFailedPrecondition},
	}
	for i, s := range steps {
		acked, err := w.write("in", s.offset, s.data, s.eof)
		if s.code != 0 {
			if connect.CodeOf(err) != s.code {
				t.Errorf("step %d: %v, want %v", i, err, s.code)
			}
			continue
		}
		if err != nil || acked != s.acked {
			t.Errorf("step %d: %d, %v; want %d", i, acked, err, s.acked)
		}
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "in"}))
	r, err := collect(t, stream, err, nil)
	if err != nil || r.stdout.String() != "up\nhello world\nend\n" {
		t.Errorf("%q, %v", r.stdout.String(), err)
	}
}

// A large input fills the pipe: the call waits for the command, and one that
// gives up can be sent again.
func TestInputWaits(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("echo up; read x </dev/null; while [ ! -e /tmp/go-$PPID-" + strconv.Itoa(os.Getpid()) + " ]; do sleep 0.02; done; wc -c")
	cmd.Stdin = true
	flag := fmt.Sprintf("/tmp/go-0-%d", os.Getpid())
	defer os.Remove(flag)
	if _, err := w.start("waits", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	data := strings.Repeat("z", 300_000)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.exec.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{Id: "waits", Data: []byte(data)}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v, want a deadline", err)
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if acked, err := w.write("waits", 0, data, true); err != nil || acked != 300_000 {
		t.Errorf("again: %d, %v", acked, err)
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "waits"}))
	if r, err := collect(t, stream, err, nil); err != nil || r.stdout.String() != "up\n300000\n" {
		t.Errorf("%q, %v", r.stdout.String(), err)
	}
}

func TestInputToTheDeaf(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("exec <&-; echo up; sleep 1000")
	cmd.Stdin = true
	if _, err := w.start("deaf", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.write("deaf", 0, "x", false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("got %v", err)
	}
	w.signal("deaf", 9, true, "")
	w.run("null", sh("true"))
	if _, err := w.write("null", 0, "x", false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("no input at all: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cmd := sh("stty -echo; stty size; trap 'stty size; echo resized' WINCH; echo $TERM; while read x; do echo \"<$x>\"; done; tty -s && echo end")
		cmd.Argv[0] = "bash" // whose read goes on after a trap
		cmd.Terminal = &guestv1.Terminal{Cols: 100, Rows: 40}
		if _, err := w.start("tty", cmd, until("xterm-256color")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.write("tty", 0, "hello\n", false); err != nil {
			t.Fatal(err)
		}
		_, err := w.exec.Resize(t.Context(), connect.NewRequest(&guestv1.ResizeRequest{Id: "tty", Size: &guestv1.Terminal{Cols: 20, Rows: 10}}))
		if err != nil {
			t.Fatal(err)
		}
		follow := func(enough func(*result) bool) *result {
			stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "tty"}))
			r, err := collect(t, stream, err, enough)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		follow(until("<hello>"))
		if _, err := w.write("tty", 6, "again\n", true); err != nil {
			t.Fatal(err)
		}
		r := follow(nil)
		for _, want := range []string{"40 100\r\n", "<hello>\r\n", "10 20\r\n", "<again>\r\n", "end\r\n"} {
			if !strings.Contains(r.stdout.String(), want) {
				t.Errorf("%q is missing in %q", want, r.stdout.String())
			}
		}
		if r.exit.GetCode() != 0 {
			t.Errorf("exit %v", r.exit)
		}
	})
}

// A signal to a terminal's command reaches whoever has the terminal.
func TestForeground(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := &guestv1.Command{
		Argv:     []string{"bash", "-ic", "echo up; sleep 1000; echo next; exit 6"},
		Terminal: &guestv1.Terminal{},
	}
	if _, err := w.start("fg", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shell stays", func() bool {
		_, err := w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "fg", Signal: 15}))
		return err != nil || w.get("fg").GetExit() != nil
	})
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "fg"}))
	if r, err := collect(t, stream, err, nil); err != nil || r.exit.GetCode() != 6 || !strings.Contains(r.stdout.String(), "next") {
		t.Errorf("%q, %v, %v", r.stdout.String(), r.exit, err)
	}
}

func TestGetAndList(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("echo out; echo err >&2; exit 2")
	cmd.Tag, cmd.Labels, cmd.Env = "tag", map[string]string{"k": "v"}, map[string]string{"SECRET": "s"}
	w.run("one", cmd)
	p := w.get("one")
	if p.GetStdoutBytes() != 4 || p.GetStderrBytes() != 4 || p.GetExit().GetCode() != 2 ||
		p.GetCommand().GetTag() != "tag" || p.GetCommand().GetLabels()["k"] != "v" || p.GetCommand().GetUser() != "user" {
		t.Errorf("got %v", p)
	}
	if p.GetCommand().GetEnv() != nil {
		t.Error("the environment is told")
	}
	res, err := w.exec.List(t.Context(), connect.NewRequest(&guestv1.ListRequest{}))
	if err != nil || len(res.Msg.GetProcesses()) != 1 || res.Msg.GetProcesses()[0].GetId() != "one" {
		t.Errorf("List = %v, %v", res, err)
	}
}

// A disk that a failed command left full is told; one it did not is not.
func TestDiskLimit(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,nr_inodes=100,mode=1777"); err != nil {
		t.Skip("mount:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for p := filepath.Dir(dir); p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := open(t, setup{cgroups: true, disks: []string{"/", dir}})
	if r := w.run("fails", sh("exit 1")); r.exit.GetLimits() != nil {
		t.Errorf("an empty disk: %v", r.exit)
	}
	if r := w.run("fill", sh("cat /dev/zero >"+dir+"/f")); !slices.Equal(r.exit.GetLimits(), []string{"disk"}) {
		t.Errorf("a full disk: %v", r.exit)
	}
	if r := w.run("full", sh("exit 0")); r.exit.GetLimits() != nil {
		t.Errorf("success on a full disk: %v", r.exit)
	}
	if r := w.run("many", sh("rm "+dir+"/f; i=0; while : >"+dir+"/f$i; do i=$((i+1)); done; exit 1")); !slices.Equal(r.exit.GetLimits(), []string{"inodes"}) {
		t.Errorf("no inodes: %v", r.exit)
	}
}

// After many commands nothing is left of them but their records.
func TestNothingLeft(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		fds := func() int {
			names, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(names)
		}
		w.run("warm", sh("true"))
		before, goroutines := fds(), runtime.NumGoroutine()
		for i := range 100 {
			cmd := sh("cat; exit 1")
			if i%2 == 0 {
				cmd.Terminal = &guestv1.Terminal{}
				cmd.Argv[2] = "exit 1"
			}
			w.run(fmt.Sprint("n", i), cmd)
			w.run(fmt.Sprint("bad", i), &guestv1.Command{Argv: []string{"/no/such"}, Stdin: true})
		}
		// Pooled cgroups keep a few descriptors each.
		eventually(t, "descriptors leak", func() bool { return fds() <= before+20 })
		eventually(t, "goroutines leak", func() bool { return runtime.NumGoroutine() <= goroutines+4 })
	})
}

func BenchmarkTrue(b *testing.B) {
	w := open(b, setup{cgroups: true})
	n := 0
	b.Run("fork-and-reap", func(b *testing.B) { // what the others are measured against
		for b.Loop() {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("engine", func(b *testing.B) {
		for b.Loop() {
			n++
			c, err := w.engine.Start(fmt.Sprint("e", n), process.Spec{Argv: []string{"/bin/true"}})
			if err != nil {
				b.Fatal(err)
			}
			<-c.Done()
		}
	})
	b.Run("http", func(b *testing.B) {
		for b.Loop() {
			n++
			if r := w.run(fmt.Sprint("h", n), &guestv1.Command{Argv: []string{"/bin/true"}}); r.exit.GetCode() != 0 {
				b.Fatal(r.exit)
			}
		}
	})
}
