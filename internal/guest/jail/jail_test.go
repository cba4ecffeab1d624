package jail_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// The first thread is the one that /proc/self shows: no worker may get it.
func init() { runtime.LockOSThread() }

var nobody = jail.User{UID: 1000, GID: 1000}

func start(t testing.TB, cfg jail.Config) *jail.Jail {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cfg.PIDNamespace = true
	j, err := jail.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

type result struct {
	out    string
	status jail.Status
	inner  int
}

func run(t testing.TB, j *jail.Jail, c jail.Command) (result, error) {
	t.Helper()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Files = [3]*os.File{null, w, w}
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/bin:/bin"}
	}
	p, _, err := j.Spawn(c)
	_ = w.Close()
	if err != nil {
		return result{}, err
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return result{out: string(out), status: p.Wait(), inner: p.Inner}, nil
}

func sh(t testing.TB, j *jail.Jail, u jail.User, script string) result {
	t.Helper()
	r, err := run(t, j, jail.Command{Argv: []string{"sh", "-c", script}, User: u})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSpawn(t *testing.T) {
	j := start(t, jail.Config{})
	tests := []struct {
		name   string
		user   jail.User
		script string
		want   string
	}{
		{"ids", jail.User{UID: 1000, GID: 1001, Groups: []uint32{7, 8}}, "id -u; id -g; id -G", "1000\n1001\n1001 7 8\n"},
		{
			"no-capabilities", nobody, "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\t'",
			"CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n",
		},
		{
			"root-capabilities",
			jail.User{},
			"grep -E 'Cap(Eff|Bnd|Inh)' /proc/self/status | tr -d '\t'",
			"CapInh:0000000000000000\nCapEff:00000000200405fb\nCapBnd:00000000200405fb\n",
		},
		{"own-session", nobody, `[ "$(ps -o sid= -p $$ | tr -d ' ')" = $$ ] && echo leads`, "leads\n"},
		{"own-descriptors", nobody, "exec ls /proc/self/fd", "0\n1\n2\n3\n"}, // 3 is ls's own
		{"agent-not-seen", nobody, "grep -l jail.test /proc/[0-9]*/comm", ""},
		{"init-is-one", nobody, "cat /proc/1/comm", "carboy-init\n"},
		{"init-closed", jail.User{}, "readlink /proc/1/fd/0 /proc/1/exe /proc/1/root; cat /proc/1/environ 2>/dev/null; true", ""},
		{"setuid-bit", nobody, "f=$(mktemp); chmod 4755 $f 2>&1 | grep -o 'not permitted'; rm -f $f", "not permitted\n"},
		{"proc-sys", jail.User{}, "echo x 2>/dev/null >/proc/sys/kernel/core_pattern || echo no", "no\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := sh(t, j, tt.user, tt.script).out; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestInnerPID(t *testing.T) {
	j := start(t, jail.Config{})
	r := sh(t, j, nobody, "echo $$")
	if got, want := strings.TrimSpace(r.out), r.inner; got == "" || got != strconv.Itoa(want) {
		t.Errorf("inner pid = %d, the command says %s", want, got)
	}
}

func TestStatus(t *testing.T) {
	j := start(t, jail.Config{})
	tests := []struct {
		script string
		want   jail.Status
		words  string
	}{
		{"exit 0", jail.Status{}, "exit status 0"},
		{"exit 3", jail.Status{Code: 3}, "exit status 3"},
		{"exit 255", jail.Status{Code: 255}, "exit status 255"},
		{"kill -9 $$", jail.Status{Code: 137, Signal: syscall.SIGKILL}, "signal: killed"},
		{"kill -TERM $$", jail.Status{Code: 143, Signal: syscall.SIGTERM}, "signal: terminated"},
	}
	for _, tt := range tests {
		t.Run(tt.script, func(t *testing.T) {
			got := sh(t, j, nobody, tt.script).status
			if got != tt.want || got.String() != tt.words {
				t.Errorf("got %+v (%s), want %+v (%s)", got, got, tt.want, tt.words)
			}
		})
	}
}

func TestStartError(t *testing.T) {
	j := start(t, jail.Config{})
	dir := t.TempDir()
	for p := dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := write("plain", "x", 0o644)
	noShebang := write("script", "echo hi\n", 0o755)
	badInterpreter := write("bad", "#!/no/such\n", 0o755)
	write("locked/tool", "#!/bin/sh\n", 0o755)
	if err := os.Chmod(filepath.Join(dir, "locked"), 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + dir + ":/usr/bin:/bin"}
	tests := []struct {
		name string
		cmd  jail.Command
		code int
		dir  bool
	}{
		{"not-found", jail.Command{Argv: []string{"no-such-tool"}}, 127, false},
		{"not-found-path", jail.Command{Argv: []string{"/no/such"}}, 127, false},
		{"below-a-file", jail.Command{Argv: []string{plain + "/x"}}, 127, false},
		{"not-executable", jail.Command{Argv: []string{plain}}, 126, false},
		{"not-executable-in-path", jail.Command{Argv: []string{"plain"}}, 126, false},
		{"directory", jail.Command{Argv: []string{"/tmp"}}, 126, false},
		{"no-interpreter-line", jail.Command{Argv: []string{noShebang}}, 126, false},
		{"bad-interpreter", jail.Command{Argv: []string{badInterpreter}}, 127, false},
		{"not-allowed-to-look", jail.Command{Argv: []string{"tool"}, Env: []string{"PATH=" + dir + "/locked"}}, 126, false},
		{"nothing-told-of-closed-directories", jail.Command{Argv: []string{"absent"}, Env: []string{"PATH=" + dir + "/locked"}}, 126, false},
		{"no-directory", jail.Command{Argv: []string{"true"}, Dir: "/no/such"}, 126, true},
		{"closed-directory", jail.Command{Argv: []string{"true"}, Dir: dir + "/locked"}, 126, true},
		{"too-long", jail.Command{Argv: []string{"true", strings.Repeat("x", 200_000)}}, 126, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.cmd.User = nobody
			if tt.cmd.Env == nil {
				tt.cmd.Env = env
			}
			_, err := run(t, j, tt.cmd)
			got, ok := errors.AsType[*jail.StartError](err)
			if !ok {
				t.Fatalf("got %v, want a StartError", err)
			}
			if got.Code != tt.code || got.Dir != tt.dir || got.Msg == "" {
				t.Errorf("got %d, dir %t, %q; want %d, dir %t", got.Code, got.Dir, got.Msg, tt.code, tt.dir)
			}
		})
	}
	// The thread is root's again.
	if got := sh(t, j, nobody, "id -u").out; got != "1000\n" {
		t.Errorf("after the errors: got %q", got)
	}
}

// A mount that is hidden is not seen inside, and stays for the agent.
func TestHide(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skip("mount:", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, start(t, jail.Config{}), jail.User{}, "ls "+dir).out; got != "secret\n" {
		t.Errorf("not hidden: got %q, want to see it", got)
	}
	if got := sh(t, start(t, jail.Config{Hide: []string{dir}}), jail.User{}, "ls "+dir).out; got != "" {
		t.Errorf("hidden: got %q, want nothing", got)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
	if _, err := jail.Start(jail.Config{Hide: []string{"/no/such"}, PIDNamespace: true}); err == nil {
		t.Error("a path that can't be hidden: no error")
	}
}

// Root inside may be able to end init. The jail then goes on with another.
func TestInitDies(t *testing.T) {
	j := start(t, jail.Config{})
	if err := j.KillInitForTest(); err != nil {
		t.Fatal(err)
	}
	var err error
	again := patience.Until(10*time.Second, func() bool {
		var r result
		r, err = run(t, j, jail.Command{Argv: []string{"echo", "again"}, User: nobody})
		return err == nil && r.out == "again\n"
	})
	if !again {
		t.Fatalf("no second life: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	j := start(t, jail.Config{})
	term, err := j.OpenTerminal(nobody, jail.Size{Cols: 97, Rows: 31})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Master.Close()
	p, _, err := j.Spawn(jail.Command{
		Argv: []string{"sh", "-c", "stty size; : </dev/tty && : <$(tty) && echo own"}, Env: []string{"PATH=/usr/bin:/bin"},
		Dir: "/", User: nobody, Files: [3]*os.File{term.Slave, term.Slave, term.Slave}, Terminal: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = term.Slave.Close()
	var out bytes.Buffer
	_, err = io.Copy(&out, term.Master)
	if !errors.Is(err, unix.EIO) {
		t.Errorf("end of terminal: %v", err)
	}
	if got, want := out.String(), "31 97\r\nown\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Wait()
}

func TestManyAtOnce(t *testing.T) {
	j := start(t, jail.Config{})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if r := sh(t, j, nobody, "exit 7"); r.status.Code != 7 {
				t.Errorf("got %v", r.status)
			}
		})
	}
	wg.Wait()
}

func TestSignalAfterEnd(t *testing.T) {
	j := start(t, jail.Config{})
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, _, err := j.Spawn(jail.Command{Argv: []string{"true"}, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", User: nobody, Files: [3]*os.File{null, null, null}})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
		t.Errorf("Signal = %v, want ESRCH", err)
	}
	if err := p.SignalGroup(unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
		t.Errorf("SignalGroup = %v, want ESRCH", err)
	}
}

// What a command leaves behind bears its mark, however it hides.
func TestMarks(t *testing.T) {
	j := start(t, jail.Config{Marked: true})
	spawn := func(script string) (*jail.Process, jail.Mark) {
		null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		p, mark, err := j.Spawn(jail.Command{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", User: nobody, Files: [3]*os.File{null, null, null}})
		if err != nil {
			t.Fatal(err)
		}
		return p, mark
	}
	other, otherMark := spawn("exec sleep 1000")
	p, mark := spawn("(setsid sh -c 'sleep 1000 & exec sleep 1000' &) & wait")
	p.Wait()
	if mark == 0 || mark == otherMark {
		t.Fatalf("marks %d and %d", mark, otherMark)
	}
	if n, err := jail.KillMarked(mark, 10*time.Second); n != 0 || err != nil {
		t.Errorf("KillMarked = %d, %v", n, err)
	}
	if n, err := jail.Marked(otherMark, 0); n != 1 || err != nil {
		t.Errorf("the other command: %d, %v; want 1", n, err)
	}
	_ = other.Signal(unix.SIGKILL)
	other.Wait()

	// With and without the filter: a mark that could be left would be none.
	script := "unshare -u true 2>/dev/null && echo out; unshare -Uu true 2>/dev/null && echo out"
	if got := sh(t, j, nobody, script).out; got != "" {
		t.Errorf("marked: got %q", got)
	}
	if got := sh(t, start(t, jail.Config{Marked: true, Strict: true}), nobody, script+"; echo ran").out; got != "ran\n" {
		t.Errorf("marked and strict: got %q", got)
	}
	if got := sh(t, start(t, jail.Config{}), nobody, script).out; got != "out\n" {
		t.Errorf("unmarked: got %q, want one to get out", got)
	}
}

// Without a pid namespace the agent is who reaps orphans.
func TestOrphans(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	j, err := jail.Start(jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for range 20 {
		r := sh(t, j, nobody, "(sh -c 'exit 5' & echo $!) ; exit 7")
		if r.status.Code != 7 {
			t.Fatalf("status %v, want 7", r.status)
		}
		pid := strings.TrimSpace(r.out)
		if !patience.Until(10*time.Second, func() bool { _, err := os.Stat("/proc/" + pid); return err != nil }) {
			t.Fatalf("orphan %s was not reaped", pid)
		}
	}
}

func BenchmarkSpawn(b *testing.B) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	c := jail.Command{Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin"}, Dir: "/", User: nobody, Files: [3]*os.File{null, null, null}}
	for _, bb := range []struct {
		name string
		cfg  jail.Config
	}{{"jail", jail.Config{}}, {"strict", jail.Config{Strict: true}}, {"strict-held", jail.Config{Strict: true, OOMScore: 500}}} {
		b.Run(bb.name, func(b *testing.B) {
			j := start(b, bb.cfg)
			for b.Loop() {
				p, _, err := j.Spawn(c)
				if err != nil {
					b.Fatal(err)
				}
				p.Wait()
			}
		})
	}
	b.Run("fork-and-reap", func(b *testing.B) {
		for b.Loop() {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
