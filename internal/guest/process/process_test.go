package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/test/long"
)

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

// Many bytes, a gibibyte in make test-long, through a reader who takes its time: all of
// them arrive, and neither side holds more than a little of them.
func TestManyBytes(t *testing.T) {
	w := open(t, setup{cgroups: true})
	want := long.Rounds(128<<20, 1<<30)
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
