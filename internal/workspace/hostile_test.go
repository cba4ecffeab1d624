package workspace_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// swapping exchanges two paths again and again until the test ends.
func swapping(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// A parent that turns into a symlink while changes are applied leads nowhere:
// not for what is written, and not for what is removed.
func TestParentSwappedForALink(t *testing.T) {
	base, upper := twoDirs(t, tree{"d/old": "1", "link": "-> ../outside"})
	outside := filepath.Join(filepath.Dir(base), "outside")
	tree{"old": "theirs", "sub/x": "theirs"}.write(t, outside)
	tree{"d/f": "agent's", "d/g/h": "agent's"}.write(t, upper)
	whiteout(t, upper+"/d/old")
	whiteout(t, upper+"/d/sub")
	s := stream(t, upper, options(true, future))
	stop := swapping(t, base+"/d", base+"/link")
	defer stop()
	worked := 0
	for range 300 {
		below := []string{"d/f", "d/g", "d/old", "d/sub"} // not d, which would rightly replace the link
		if _, err := apply(t, base, s, workspace.ApplyOptions{Paths: below}); err == nil {
			worked++
		}
	}
	diff(t, "outside", read(t, outside), tree{"old": "theirs", "sub": "/", "sub/x": "theirs"})

	// The control: the same race does catch who resolves paths by name.
	for range 100_000 {
		if st, err := os.Lstat(base + "/d"); err == nil && st.IsDir() {
			os.WriteFile(base+"/d/naive", nil, 0o644)
		}
		if _, err := os.Stat(outside + "/naive"); err == nil {
			t.Logf("apply worked %d times of 300 and never left; a naive write left", worked)
			return
		}
	}
	t.Error("the race never happened, so the test shows nothing")
}

func TestAnotherMountIsNotEntered(t *testing.T) {
	privateMounts(t)
	base, upper := twoDirs(t, tree{"m/x": "hidden"})
	mount(t, "tmpfs", base+"/m", "tmpfs", "size=1m")
	tree{"m/x": "theirs"}.write(t, base)
	tree{"m/x": "agent's", "m/new": "agent's"}.write(t, upper)
	res, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(res.Conflicts[0].Reason, "mounted") {
		t.Fatalf("Apply = %v, %+v", err, res.Conflicts)
	}
	must(t, os.RemoveAll(upper+"/m"))
	whiteout(t, upper+"/m")
	if _, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{Paths: []string{"m"}, Force: true}); err == nil {
		t.Error("Apply removed a mount")
	}
	diff(t, "mount", read(t, base+"/m"), tree{"x": "theirs"})
}

func TestFullDiskChangesNothing(t *testing.T) {
	privateMounts(t)
	_, upper := twoDirs(t, nil)
	base := t.TempDir()
	mount(t, "tmpfs", base, "tmpfs", "size=1m")
	tree{"a": "old"}.write(t, base)
	tree{"a": strings.Repeat("new", 100_000), "b": strings.Repeat("x", 2<<20)}.write(t, upper)
	_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Fatalf("Apply = %v, want kind %q", err, sandbox.Exhausted)
	}
	diff(t, "base", read(t, base), tree{"a": "old"})
	_, err = apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{Paths: []string{"a"}})
	must(t, err)
}

// The disk fills between the look and the write: whole files or none.
func TestDiskFillsWhileWriting(t *testing.T) {
	privateMounts(t)
	_, upper := twoDirs(t, nil)
	base := t.TempDir()
	mount(t, "tmpfs", base, "tmpfs", "size=1m")
	body := strings.Repeat("x", 200<<10)
	tree{"a": body, "b": body, "c": body}.write(t, upper)
	res, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Fatalf("Apply = %v, want kind %q", err, sandbox.Exhausted)
	}
	got := read(t, base)
	if len(got) == 0 || len(got) == 3 || len(got) != len(res.Applied) {
		t.Errorf("%d files, %d said to be applied", len(got), len(res.Applied))
	}
	for p, content := range got {
		if content != body {
			t.Errorf("%s has %d bytes, want %d", p, len(content), len(body))
		}
	}
}

// helper returns a command that applies streams to base in another process.
func helper(t *testing.T, base string, streams ...[]byte) *exec.Cmd {
	t.Helper()
	args := []string{base}
	dir, err := os.MkdirTemp("", "carboy-helper")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	for i, s := range streams {
		p := filepath.Join(dir, string(rune('a'+i)))
		must(t, os.WriteFile(p, s, 0o644))
		args = append(args, p)
	}
	cmd := exec.Command("/proc/self/exe", args...) // which another user can execute wherever it lies
	cmd.Env = append(os.Environ(), helperEnv+"=apply")
	return cmd
}

// kill -9 at any moment leaves the old file or the new one.
func TestKilledWhileApplying(t *testing.T) {
	base, upper := twoDirs(t, tree{})
	versions := []string{strings.Repeat("a", 4<<20), strings.Repeat("b", 4<<20)}
	var streams [][]byte
	for _, v := range versions {
		tree{"f": v, "d/g": v}.write(t, upper)
		streams = append(streams, stream(t, upper, options(true, future)))
	}
	tree{"f": versions[0], "d/g": versions[0]}.write(t, base)
	for round := range 15 {
		cmd := helper(t, base, streams...)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n <= round%4 && lines.Scan(); n++ {
		}
		for range round * 20 { // a little later each time, without a clock
			os.ReadFile("/proc/self/status")
		}
		must(t, cmd.Process.Kill())
		io.Copy(io.Discard, out)
		cmd.Wait()
		for _, p := range []string{"f", "d/g"} {
			b, err := os.ReadFile(filepath.Join(base, p))
			must(t, err)
			if s := string(b); s != versions[0] && s != versions[1] {
				t.Fatalf("round %d: %s has %d bytes of neither version", round, p, len(b))
			}
		}
	}
}

func TestApplyAsAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "carboy-user")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	base, upper := filepath.Join(dir, "base"), filepath.Join(dir, "upper")
	must(t, os.MkdirAll(upper, 0o755))
	tree{"mine": "1", "root's": "1", "closed/x": "1"}.write(t, base)
	for _, p := range []string{"", "/mine"} {
		must(t, os.Chown(base+p, 1234, 1234))
	}
	tree{"mine": "2", "root's": "2", "new/x": "3"}.write(t, upper)
	as := func(s []byte) (string, error) {
		cmd := helper(t, base, s)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		return stderr.String(), err
	}
	if msg, err := as(stream(t, upper, options(true, future))); err != nil {
		t.Fatalf("apply: %v: %s", err, msg)
	}
	for p, content := range map[string]string{"mine": "2", "root's": "2", "new/x": "3"} {
		var st unix.Stat_t
		must(t, unix.Lstat(base+"/"+p, &st))
		if b, _ := os.ReadFile(base + "/" + p); string(b) != content || st.Uid != 1234 {
			t.Errorf("%s: content %q of uid %d, want %q of 1234", p, b, st.Uid, content)
		}
	}
	before := read(t, base)
	must(t, os.RemoveAll(upper))
	tree{"closed/x": "2"}.write(t, upper)
	if msg, err := as(stream(t, upper, options(true, future))); err != nil { // it is held back
		t.Errorf("apply in another's directory = %v: %s", err, msg)
	}
	diff(t, "base", read(t, base), before)
}

func TestPermissionsAreKeptByRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	base, upper := twoDirs(t, tree{"a": "1"})
	must(t, os.Chown(base+"/a", 1234, 1235))
	tree{"a": "2"}.write(t, upper)
	_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Lstat(base+"/a", &st))
	if st.Uid != 1234 || st.Gid != 1235 {
		t.Errorf("owner %d:%d, want 1234:1235", st.Uid, st.Gid)
	}
}

// The producer follows nothing and waits for nothing, whatever is swapped.
func TestProducerAgainstSwaps(t *testing.T) {
	_, upper := twoDirs(t, tree{})
	outside := t.TempDir()
	tree{"f": "secret", "x/f": "secret"}.write(t, outside)
	tree{"f": "agent's", "d/f": "agent's"}.write(t, upper)
	other := t.TempDir()
	must(t, os.Symlink(outside+"/f", other+"/link"))
	must(t, os.Symlink(outside, other+"/dirlink"))
	must(t, unix.Mkfifo(other+"/fifo", 0o644))
	stops := []func(){
		swapping(t, upper+"/f", other+"/link"),
		swapping(t, other+"/link", other+"/fifo"),
		swapping(t, upper+"/d", other+"/dirlink"),
	}
	for range 500 {
		if s := stream(t, upper, options(true, future)); bytes.Contains(s, []byte("secret")) {
			t.Error("the stream has a file from outside")
			break
		}
	}
	for _, stop := range stops {
		stop()
	}
}

// Files that grow and shrink while they are read never break the stream.
func TestProducerAgainstGrowth(t *testing.T) {
	base, upper := twoDirs(t, tree{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		f, err := os.Create(upper + "/f")
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for i := int64(0); ; i++ {
			select {
			case <-done:
				return
			default:
				f.Truncate(i % 7 * 700_000)
				f.WriteAt([]byte{byte(i)}, i%5*900_000)
			}
		}
	})
	for range 30 {
		_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
		if err != nil && sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("Apply = %v", err)
		}
	}
	close(done)
	wg.Wait()
	leftovers(t, base)
}

func TestWriterErrorsAreReported(t *testing.T) {
	_, upper := twoDirs(t, tree{})
	tree{"a": strings.Repeat("x", 1<<20)}.write(t, upper)
	r, w := io.Pipe()
	gone := errors.New("gone")
	r.CloseWithError(gone)
	err := workspace.WriteChanges(t.Context(), w, workspace.OverlayUpper(openDir(t, upper), nil, nil), options(true, past))
	if !errors.Is(err, gone) {
		t.Errorf("WriteChanges = %v, want %v", err, gone)
	}
}

// TestBaseByALink: the directory that changes go to may lie below one that
// another sandbox writes to. It is not found through a link there.
func TestBaseByALink(t *testing.T) {
	top := t.TempDir()
	tree{"shared/way": "-> ../outside", "outside/sub/f": "x"}.write(t, top)
	for _, dir := range []string{"shared/way", "shared/way/sub"} {
		b, err := workspace.OpenBase(filepath.Join(top, dir))
		if err == nil {
			b.Close()
		}
		if !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), "shared/way is a link") {
			t.Errorf("%s: got %v, want the link named", dir, err)
		}
	}
	b, err := workspace.OpenBase(filepath.Join(top, "outside/sub")) // the control
	must(t, err)
	b.Close()
}
