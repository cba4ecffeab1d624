package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxBetter has what sessions do beyond the original: one test for each
// thing that its users miss or trip over.
func TestBoxBetter(t *testing.T) {
	w := newBoxWorld(t, "process", nil)
	w.testTimesUp(t)
	w.testCommandLines(t)
	w.testAnswers(t)
	w.testBetterSandboxes(t)
}

func (w *boxWorld) testTimesUp(t *testing.T) {
	w.subtest(t, "timeout-kills-the-tree-and-keeps-the-session", func(t *testing.T) {
		w.exec(t, "a", "echo kept > /tmp/kept")
		s := boxservice.NewSpec("a", "(setsid sleep 7777 &) ; sleep 7777 & echo begun; sleep 7777")
		for sec := 1; ; sec *= 3 {
			s.TimeoutSec = sec
			r, err := w.client.Exec(t.Context(), s)
			if err == nil && r.Status == sessions.StatusTimedOut && r.Stdout == "" && sec < 30 {
				continue // its time was over before a busy machine had let it say a word
			}
			if err != nil || r.Status != sessions.StatusTimedOut || r.ExitCode != nil || r.Stdout != "begun\n" || r.Stderr != fmt.Sprintf("Command timed out after %d seconds.", sec) {
				t.Fatalf("got %+v, %v", r, err)
			}
			break
		}
		if left := w.exec(t, "a", "cat /tmp/kept; grep -alz 7777 /proc/[0-9]*/cmdline | grep -v self | xargs -r -n1 cat | tr '\\0' ' ' | grep -c '^sleep 7777' || true"); left != "kept\n0\n" {
			t.Errorf("afterwards there are %q", left)
		}
	})
	w.subtest(t, "timeout-resets-where-it-is-asked-to", func(t *testing.T) {
		w.exec(t, "a", "true")
		before := w.sessions(t)["a"].BackendSessionID
		s := boxservice.NewSpec("a", "sleep 100")
		s.TimeoutSec, s.OnTimeout = 1, sessions.OnTimeoutReset
		if r, err := w.client.Exec(t.Context(), s); err != nil || r.Status != sessions.StatusTimedOut {
			t.Fatalf("got %+v, %v", r, err)
		}
		w.exec(t, "a", "true")
		if after := w.sessions(t)["a"].BackendSessionID; after == before {
			t.Error("it is the same sandbox")
		}
	})
	w.subtest(t, "time-in-the-queue-counts", func(t *testing.T) {
		w.exec(t, "a", "true")
		var wg sync.WaitGroup
		defer wg.Wait()
		ended := make(chan struct{})
		wg.Go(func() {
			defer close(ended)
			w.exec(t, "a", "sleep 7779; true")
		})
		until(t, func() bool { return w.sessions(t)["a"].Active == 1 })
		s := boxservice.NewSpec("a", "echo never")
		s.TimeoutSec = 1
		r, err := w.client.Exec(t.Context(), s)
		if err != nil || r.Status != sessions.StatusTimedOut || r.Stdout != "" || r.QueuedMS < 900 {
			t.Errorf("got %+v, %v", r, err)
		}
		select {
		case <-ended:
			t.Error("the caller waited until the other command had ended")
		default:
		}
		until(t, func() bool {
			for _, pid := range pidsWith("sleep\x007779\x00") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})
	})
}

func (w *boxWorld) testCommandLines(t *testing.T) {
	w.subtest(t, "environment-is-on-no-command-line", func(t *testing.T) {
		const value = "dont-show-this-4711"
		s := boxservice.NewSpec("a", `printf %s "$SECRET"; sleep 1`)
		s.Env = map[string]string{"SECRET": value}
		done := make(chan boxservice.Result, 1)
		go func() {
			r, _ := w.client.Exec(t.Context(), s)
			done <- r
		}()
		for {
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, name := range lines {
				if b, _ := os.ReadFile(name); bytes.Contains(b, []byte(value)) {
					t.Fatalf("%s has it: %q", name, b)
				}
			}
			select {
			case r := <-done:
				if r.Stdout != value {
					t.Errorf("the command has %q", r.Stdout)
				}
				return
			default:
			}
		}
	})
	w.subtest(t, "large-scripts", func(t *testing.T) {
		script := "x=0\n" + strings.Repeat("x=$((x+1)) # padding, so that it is more than an argument may be\n", 60_000) + "echo $x\n"
		if len(script) < 3<<20 {
			t.Fatal("it is not large")
		}
		if out := w.exec(t, "a", script); out != "60000\n" {
			t.Errorf("got %q", out)
		}
	})
}

func (w *boxWorld) testAnswers(t *testing.T) {
	w.subtest(t, "exact-output", func(t *testing.T) {
		r, err := w.client.Exec(t.Context(), boxservice.NewSpec("a", `printf '  \377\n\n'; head -c 3000000 /dev/zero >&2`))
		if err != nil || r.Stdout != "  \ufffd\n\n" || !bytes.Equal(r.StdoutRaw, []byte("  \xff\n\n")) || r.StdoutBytes != 5 {
			t.Errorf("got %q, %q, %d, %v", r.Stdout, r.StdoutRaw, r.StdoutBytes, err)
		}
		if r.StderrBytes != 3_000_000 || !strings.HasSuffix(r.Stderr, "\n... [raw output clipped at 1048576 bytes, 1951424 bytes discarded]") {
			t.Errorf("of the other stream: %d bytes, %q", r.StderrBytes, tail([]byte(r.Stderr), 100))
		}
		s := w.service(t, boxservice.Config{OutputLimit: -1})
		if tr := runTool(t, s, chat("1"), "head -c 3000000 /dev/zero"); !tr.StdoutTruncated || tr.StderrTruncated || tr.StdoutBytes != 3_000_000 {
			t.Errorf("cut: %v, %v; %d bytes", tr.StdoutTruncated, tr.StderrTruncated, tr.StdoutBytes)
		}
	})
	w.subtest(t, "conflict-names-every-field", func(t *testing.T) {
		w.exec(t, "a", "true")
		s := boxservice.NewSpec("a", "true")
		s.CPUs, s.MemoryMB, s.Network, s.ReadOnlyRootFS, s.PIDsLimit = 2, 700, "on", false, 99
		_, err := w.client.Exec(t.Context(), s)
		if boxservice.Class(err) != api.ClassSessionConflict {
			t.Fatalf("got %v", err)
		}
		for _, field := range []string{"network=off", "cpus=1", "memory_mb=512", "pids_limit=128", "read_only_rootfs=true"} {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%s is not in: %v", field, err)
			}
		}
	})
	w.subtest(t, "errors-have-classes", func(t *testing.T) {
		call := func(err error) error { return err }
		bad := boxservice.NewSpec("", "true")
		_, noID := w.client.Exec(t.Context(), bad)
		_, noCmd := w.client.Exec(t.Context(), boxservice.NewSpec("a", "  "))
		_, noSession := w.client.Get(t.Context(), "nobody")
		w.exec(t, "a", "true")
		_, noProcess := w.client.Process(t.Context(), "a", "none")
		_, noAttach := w.client.Attach(t.Context(), "a", "none")
		for _, tt := range []struct {
			err   error
			class string
		}{
			{noID, api.ClassValidation},
			{noCmd, api.ClassValidation},
			{noSession, api.ClassSessionNotFound},
			{noProcess, api.ClassProcessNotFound},
			{noAttach, api.ClassProcessNotFound},
			{call(w.client.Delete(t.Context(), "nobody")), api.ClassSessionNotFound},
		} {
			if boxservice.Class(tt.err) != tt.class {
				t.Errorf("%v is of class %s, want %s", tt.err, boxservice.Class(tt.err), tt.class)
			}
		}
	})
}

func (w *boxWorld) testBetterSandboxes(t *testing.T) {
	w.subtest(t, "hard-quota", func(t *testing.T) {
		s := boxservice.NewSpec("a", "head -c 100000000 /dev/zero > big; code=$?; echo $code; stat -c %s big; exit $code")
		s.WorkspaceQuotaMB, s.Quota = 16, sessions.QuotaHard
		r, err := w.client.Exec(t.Context(), s)
		var code, size int
		// What the file system needs for itself is not taken from the quota, so that
		// a little more may fit.
		if _, scan := fmt.Sscan(r.Stdout, &code, &size); err != nil || scan != nil || code == 0 || size < 15<<20 || size > 17<<20 {
			t.Errorf("got %+v, %v", r, err)
		}
		if !slices.Contains(r.Limits, "disk") {
			t.Errorf("it ran into %q", r.Limits)
		}
		s.Cmd = "rm big; echo small > small && cat small"
		if r, err := w.client.Exec(t.Context(), s); err != nil || r.Stdout != "small\n" {
			t.Errorf("with room again: %+v, %v", r, err)
		}
		if got := w.sessions(t)["a"]; got.Quota != sessions.QuotaHard {
			t.Errorf("the quota is %q", got.Quota)
		}
		soft := boxservice.NewSpec("b", "true")
		soft.HostPath, soft.WorkspaceQuotaMB, soft.Quota = w.dirs(t, "soft")[0], 16, sessions.QuotaHard
		if _, err := w.client.Exec(t.Context(), soft); boxservice.Class(err) != api.ClassValidation {
			t.Errorf("where it can't be hard: %v", err)
		}
	})
	w.subtest(t, "no-rights", func(t *testing.T) {
		out := w.exec(t, "a", "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t '; id -u; id -g")
		for _, want := range []string{"CapEff:0000000000000000\n", "CapBnd:0000000000000000\n", "NoNewPrivs:1\n", "Seccomp:2\n", "1000\n1000\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in %q", want, out)
			}
		}
	})
	w.subtest(t, "all-mounts-are-checked", func(t *testing.T) {
		dirs := w.dirs(t, "workspace", "more")
		outside := t.TempDir()
		link := filepath.Join(dirs[1], "link")
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{outside, link, "/", "/etc", "/home", filepath.Join(w.root, "..")} {
			s := boxservice.NewSpec("a", "true")
			s.ExtraMounts = []boxservice.Mount{{HostPath: path, MountPath: "/more", Mode: "ro"}}
			if _, err := w.client.Exec(t.Context(), s); boxservice.Class(err) != api.ClassValidation {
				t.Errorf("%s as a further mount: %v", path, err)
			}
			s = boxservice.NewSpec("a", "true")
			s.HostPath = path
			if _, err := w.client.Exec(t.Context(), s); boxservice.Class(err) != api.ClassValidation {
				t.Errorf("%s as the workspace: %v", path, err)
			}
		}
		s := boxservice.NewSpec("a", "echo x > /more/x && cat /more/x")
		s.HostPath, s.ExtraMounts = dirs[0], []boxservice.Mount{{HostPath: dirs[1], MountPath: "/more", Mode: "rw"}}
		if r, err := w.client.Exec(t.Context(), s); err != nil || r.Stdout != "x\n" {
			t.Errorf("where it is allowed: %+v, %v", r, err)
		}
	})
}
