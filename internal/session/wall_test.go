package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	wall "github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestMain is also the processes that a wall makes of its binary.
func TestMain(m *testing.M) {
	role.Become(process.Roles(nil), wall.Roles())
	os.Exit(m.Run())
}

// real is a runtime over the process wall.
type real struct {
	asking
	manager *sandbox.Manager
	leave   func()
}

func bootReal(t testing.TB, state string, s *storetest.Memory, o session.Options) *real {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b, err := process.Open(t.Context(), process.Options{State: state, Cache: filepath.Join(state, "cache")})
	if err != nil {
		t.Skip("no process wall:", err)
	}
	m, err := sandbox.NewManager(sandbox.Options{Store: s, Backends: []sandbox.Backend{b}, Events: s})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(state, "processes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o.Config.Isolation = sandbox.WallProcess
	o.Manager, o.Store, o.ProcessDir, o.Log = m, s, dir, slog.New(slog.NewTextHandler(t.Output(), nil))
	r, err := session.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = m.Run(ctx) })
	tasks.Go(func() { _ = r.Run(ctx) })
	return &real{asking{r}, m, sync.OnceFunc(func() {
		r.Close()
		m.Close()
		cancel()
		tasks.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})}
}

// onWall runs a test with a runtime over the process wall.
func onWall(t *testing.T, test func(t *testing.T, d *real, again func() *real)) {
	t.Helper()
	onWallWith(t, session.Options{}, test)
}

func onWallWith(t *testing.T, o session.Options, test func(t *testing.T, d *real, again func() *real)) {
	t.Helper()
	state, s := t.TempDir(), new(storetest.Memory)
	if err := os.Chmod(state, 0o755); err != nil { // the boxes' ids pass through
		t.Fatal(err)
	}
	d := bootReal(t, state, s, o)
	defer func() {
		if err := d.DropAll(context.Background(), "", nil); err != nil {
			t.Error(err)
		}
		d.leave()
	}()
	test(t, d, func() *real {
		d.leave()
		d = bootReal(t, state, s, o)
		return d
	})
}

func (d *real) run(t *testing.T, spec sessions.Spec) *session.Result {
	t.Helper()
	res, err := d.Exec(t.Context(), ann, spec)
	if err != nil {
		t.Fatalf("Exec %.80q: %v", spec.Cmd, err)
	}
	return res
}

func (d *real) want(t *testing.T, spec sessions.Spec, code int, stdout string) {
	t.Helper()
	res := d.run(t, spec)
	if res.ExitCode == nil || *res.ExitCode != code || string(res.Stdout) != stdout {
		t.Errorf("Exec %.80q = %v, %q, %q; want %d, %q", spec.Cmd, show(res.ExitCode), res.Stdout, res.Stderr, code, stdout)
	}
}

func show(code *int) string {
	if code == nil {
		return "none"
	}
	return fmt.Sprint(*code)
}

func TestOnAWall(t *testing.T) {
	onWall(t, func(t *testing.T, d *real, _ func() *real) {
		d.want(t, asked("k", "echo hello; id -u; pwd"), 0, "hello\n1000\n/workspace\n")
		d.want(t, asked("k", "echo kept > f; exit 7"), 7, "")
		d.want(t, asked("k", "cat f; printf ' \\t \\n\\n\\001\\377'"), 0, "kept\n \t \n\n\001\377")
		there := asked("k", "pwd; touch x")
		there.Workdir = "/workspace/it's $(a) \"dir\"/-n"
		d.want(t, there, 0, there.Workdir+"\n")
		env := asked("k", "echo $GREETING; echo $PATH; tr '\\0' ' ' < /proc/$$/cmdline | grep -c 's3[c]ret'")
		env.Env = map[string]string{"GREETING": "s3cret $(id)", "PATH": "/usr/bin:/bin:/opt/s3cret"}
		d.want(t, env, 1, "s3cret $(id)\n/usr/bin:/bin:/opt/s3cret\n0\n")
		d.want(t, asked("k", "echo x > /etc/x"), 2, "")
		long := asked("k", "echo "+strings.Repeat("x", 300<<10)+" | wc -c; read a; echo $?")
		d.want(t, long, 0, fmt.Sprintln(300<<10+1)+"1\n")
		d.want(t, asked("k", "syntax ((("), 2, "")
		big := d.run(t, asked("k", "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"))
		if len(big.Stdout) != 1<<20 || big.StdoutBytes != 3_000_000 || len(big.Stderr) != 1<<20 || big.StderrBytes != 2_000_000 {
			t.Errorf("kept %d of %d and %d of %d", len(big.Stdout), big.StdoutBytes, len(big.Stderr), big.StderrBytes)
		}
		// How it began and how it ended are both there, however much lies between.
		long = asked("k", "seq 400000; echo FATAL; exit 3")
		w := d.run(t, long).Wire()
		if !strings.HasPrefix(w.Stdout, "1\n2\n") || !strings.HasSuffix(w.Stdout, "\n400000\nFATAL\n") || *w.ExitCode != 3 ||
			!strings.Contains(w.Stdout, excerpt.Note(w.StdoutLeftOut)) || w.StdoutLeftOut == 0 || w.StdoutBytes != 2_688_901 {
			t.Errorf("of %d bytes %d are left out, and the end is %q", w.StdoutBytes, w.StdoutLeftOut, w.Stdout[max(0, len(w.Stdout)-40):])
		}
	})
}

// A timeout ends all that the command started, and nothing else.
func TestTimeoutEndsTheTree(t *testing.T) {
	onWall(t, func(t *testing.T, d *real, _ func() *real) {
		d.want(t, asked("k", "(setsid sleep 4321 &) ; echo"), 0, "\n")
		if _, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		var res *session.Result
		for sec := 1; sec < 30 && (res == nil || len(res.Stdout) == 0); sec *= 3 { // a shell that is slow says nothing in a second
			res = d.run(t, within(asked("k", "setsid sleep 1234 & (sleep 1234 &) ; nohup sh -c 'sleep 1234; :' & echo started; sleep 1234"), sec))
		}
		if res.Status != sessions.StatusTimedOut || string(res.Stdout) != "started\n" || res.ExitCode != nil {
			t.Errorf("Exec = %+v", res)
		}
		d.want(t, asked("k", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep 1234'"), 1, "0\n")
		p, err := d.Process(t.Context(), ann, "k", "")
		if err != nil || p.Status != sessions.ProcessRunning {
			t.Errorf("Process = %+v, %v", p, err)
		}
	})
}

// The quota of a workspace that is the session's own is held by its disk.
func TestHardQuota(t *testing.T) {
	onWall(t, func(t *testing.T, d *real, _ func() *real) {
		spec := func(cmd string) sessions.Spec {
			s := asked("k", cmd)
			s.WorkspaceQuotaMB, s.Quota = 16, sessions.QuotaHard
			return s
		}
		info, err := d.Create(t.Context(), ann, spec(""))
		if sandbox.KindOf(err) == sandbox.Unsupported {
			t.Skipf("needs loop devices, for a hard quota: %v", err)
		}
		if err != nil || info.Quota != sessions.QuotaHard {
			t.Fatalf("Create = %+v, %v", info, err)
		}
		d.want(t, spec("echo kept > f"), 0, "")
		res := d.run(t, spec("head -c 30000000 /dev/zero > big"))
		if *res.ExitCode == 0 || !strings.Contains(string(res.Stderr), "No space left on device") || strings.Join(res.Limits, " ") != "disk" {
			t.Errorf("Exec = %s, %q, limits %q", show(res.ExitCode), res.Stderr, res.Limits)
		}
		d.want(t, spec("rm big; cat f"), 0, "kept\n")
	})
}

// A daemon that is gone leaves sessions and their processes to the next.
func TestAnotherDaemonOnAWall(t *testing.T) {
	onWall(t, func(t *testing.T, d *real, again func() *real) {
		d.want(t, asked("k", "echo kept > f"), 0, "")
		if _, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		a, err := d.Attach(t.Context(), ann, "k", "")
		if err != nil {
			t.Fatal(err)
		}
		echo := func(text string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience.For(20*time.Second))
			defer cancel()
			if err := a.WriteLine(ctx, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if line, err := a.ReadLine(ctx); err != nil || string(line) != text {
				t.Errorf("ReadLine = %q, %v; want %q", line, err, text)
			}
		}
		echo("one")
		d = again()
		if a, err = d.Attach(t.Context(), ann, "k", ""); err != nil {
			t.Fatal(err)
		}
		echo("two")
		a.Close()
		d.want(t, asked("k", "cat f"), 0, "kept\n")
		if err := d.StopProcess(t.Context(), ann, "k", ""); err != nil {
			t.Error(err)
		}
	})
}

// Two runtimes on one machine leave each other's sessions alone.
func TestTwoRuntimesOnAWall(t *testing.T) {
	onWall(t, func(t *testing.T, one *real, againOne func() *real) {
		onWall(t, func(t *testing.T, two *real, againTwo func() *real) {
			one.want(t, asked("k", "echo one > f"), 0, "")
			two.want(t, asked("k", "echo two > f"), 0, "")
			one = againOne()
			one.want(t, asked("k", "cat f"), 0, "one\n")
			two = againTwo()
			two.want(t, asked("k", "cat f"), 0, "two\n")
			if err := two.DropAll(t.Context(), "", nil); err != nil {
				t.Error(err)
			}
			one.want(t, asked("k", "cat f"), 0, "one\n")
		})
	})
}

func BenchmarkExecOnAWall(b *testing.B) {
	state := b.TempDir()
	if err := os.Chmod(state, 0o755); err != nil {
		b.Fatal(err)
	}
	d := bootReal(b, state, new(storetest.Memory), session.Options{})
	defer d.leave()
	defer func() { _ = d.DropAll(context.Background(), "", nil) }()
	b.Run("create", func(b *testing.B) {
		for n := range b.N {
			key := fmt.Sprint(n)
			if _, err := d.Create(b.Context(), ann, asked(key, "")); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := d.Delete(b.Context(), ann, key); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("exec", func(b *testing.B) {
		for range b.N {
			if _, err := d.Exec(b.Context(), ann, asked("k", "true")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
