package secret_test

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestFileIsReadAtEachUse(t *testing.T) {
	s := mustOpen(t, options(t))
	path := write(t, filepath.Join(t.TempDir(), "token"), value+"\n", 0o644)
	info := mustPut(t, s, me, "FILE", secret.Source{File: path})
	if notes := strings.Join(info.Notes, "; "); !strings.Contains(notes, "end of line") || !strings.Contains(notes, "chmod") {
		t.Errorf("notes = %q", notes)
	}
	wantValue(t, s, me, "", "FILE", value)
	write(t, path, value+"-2\r\n", 0o600)
	wantValue(t, s, me, "", "FILE", value+"-2")
	write(t, path, "two\nlines-of-it\n", 0o600)
	_, err := s.Value(t.Context(), me, "", "FILE")
	wantKind(t, err, sandbox.Unavailable)
	mustRemove(t, path)
	_, err = s.Value(t.Context(), me, "", "FILE")
	wantKind(t, err, sandbox.Unavailable)
	_, err = s.Rotate(t.Context(), me, "FILE", nil)
	wantKind(t, err, sandbox.Unavailable)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(t.Context(), me, "FIFO", secret.Source{File: path})
	wantKind(t, err, sandbox.Invalid)
	_, err = s.Put(t.Context(), me, "DIR", secret.Source{File: filepath.Dir(path)})
	if err == nil {
		t.Error("a directory is a secret")
	}
}

// nobody is a user other than root, who owns what is made for it.
func nobody(t *testing.T) (owner string, uid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts for another user")
	}
	if _, err := user.LookupId("65534"); err != nil {
		t.Skip("needs a user 65534")
	}
	return "uid:65534", 65534
}

// TestFileIsOpenedAsItsOwner has root's daemon read for another user: what
// that user may read, and not what only root may.
func TestFileIsOpenedAsItsOwner(t *testing.T) {
	owner, uid := nobody(t)
	s := mustOpen(t, options(t))
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		mustChmod(t, d, 0o755)
	}
	theirs := write(t, filepath.Join(dir, "theirs"), value, 0o600)
	if err := os.Chown(theirs, uid, uid); err != nil {
		t.Fatal(err)
	}
	roots := write(t, filepath.Join(dir, "roots"), value, 0o600)
	mustPut(t, s, owner, "THEIRS", secret.Source{File: theirs})
	wantValue(t, s, owner, "", "THEIRS", value)
	_, err := s.Put(t.Context(), owner, "ROOTS", secret.Source{File: roots})
	wantKind(t, err, sandbox.Unavailable)
	// Where nothing forbids it, it is read.
	mustPut(t, s, "uid:0", "ROOTS", secret.Source{File: roots})
	// The process is still root.
	if _, err := os.ReadFile(roots); err != nil {
		t.Error(err)
	}
}

func TestCommandRunsAsItsOwner(t *testing.T) {
	owner, _ := nobody(t)
	t.Setenv("CARBOY_TEST_LEAK", "leaked")
	s := mustOpen(t, options(t))
	mustPut(t, s, owner, "WHO", secret.Source{Command: []string{"/bin/sh", "-c", `echo "$(id -u) $(id -g) $(pwd) $(env | cut -d= -f1 | grep -v -e _ -e PWD -e SHLVL -e OLDPWD | sort | tr '\n' ' ')$(env | grep -c LEAK)"`}})
	m, err := s.Value(t.Context(), owner, "", "WHO")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Value.Reveal(), "65534 65534 / HOME PATH 0"; got != want {
		t.Errorf("the command sees %q, want %q", got, want)
	}
}

func TestCommandFails(t *testing.T) {
	s := mustOpen(t, options(t))
	sh := func(script string) secret.Source { return secret.Source{Command: []string{"/bin/sh", "-c", script}} }
	tests := []struct {
		name string
		src  secret.Source
		want string
	}{
		{"exits", sh("echo " + value + "; echo " + value + " >&2; exit 3"), "exited with 3"},
		{"killed", sh("kill -9 $$"), "signal"},
		{"no-program", secret.Source{Command: []string{"/nonexistent/program"}}, "no such program"},
		{"no-output", sh("true"), "shorter"},
		{"two-lines", sh("echo " + value + "; echo " + value), "control character"},
		{"too-much", sh("head -c 70000 /dev/zero | tr '\\0' x"), "more than"},
		{"endless", sh("yes"), "more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.Put(t.Context(), me, "CMD", tt.src)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Put = %v, want %q in it", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), value) {
				t.Errorf("the error tells the value: %v", err)
			}
		})
	}
	// One that leaves something behind is done when it has ended itself.
	mustPut(t, s, me, "CMD", sh("sleep 60 & echo "+value))
}

func TestCommandIsKilled(t *testing.T) {
	s := mustOpen(t, options(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stopped by the test")
	go func() {
		f, err := os.Open(fifo) // returns once the command has it open too
		if err == nil {
			defer f.Close()
		}
		cancel(stop)
	}()
	_, err := s.Put(ctx, me, "CMD", secret.Source{Command: []string{"/bin/sh", "-c", "exec 3>" + fifo + "; sleep 600; echo " + value}})
	if !errors.Is(err, stop) {
		t.Errorf("Put = %v, want the context's cause", err)
	}
}

func TestCommandIsMinted(t *testing.T) {
	o := options(t)
	now := time.Unix(1_900_000_000, 0)
	o.Now = func() time.Time { return now }
	var runs atomic.Int32
	o.Run = func(context.Context, secret.Command) ([]byte, error) {
		return []byte("minted-" + string('a'+runs.Add(1)-1) + "\n"), nil
	}
	s := mustOpen(t, o)
	command := []string{"/bin/mint"}
	mustPut(t, s, me, "EACH", secret.Source{Command: command})            // a
	mustPut(t, s, me, "KEPT", secret.Source{Command: command, TTL: 60e9}) // b
	wantValue(t, s, me, "", "EACH", "minted-c")
	wantValue(t, s, me, "", "EACH", "minted-d")
	wantValue(t, s, me, "", "KEPT", "minted-b")
	now = now.Add(59 * time.Second)
	wantValue(t, s, me, "", "KEPT", "minted-b")
	now = now.Add(time.Second)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { wantValue(t, s, me, "", "KEPT", "minted-e") })
	}
	wg.Wait()
	if _, err := s.Rotate(t.Context(), me, "KEPT", nil); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, me, "", "KEPT", "minted-f")
	m, err := s.Value(t.Context(), me, "", "KEPT")
	if err != nil || !m.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("it expires at %v, %v", m.Expires, err)
	}
	m.Value.Wipe() // the caller's own
	wantValue(t, s, me, "", "KEPT", "minted-f")
	m, err = s.Value(t.Context(), me, "", "EACH")
	if err != nil || m.Expires.After(now) {
		t.Errorf("a value for one use expires at %v, %v", m.Expires, err)
	}
}
