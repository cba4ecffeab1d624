package files_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/test/patience"
)

var (
	user = account.Account{Name: "user", UID: 1000, GID: 1000, Groups: []uint32{4242}, Home: "/home/user"}
	root = account.Account{Name: "root", Home: "/root"}
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// needRoot skips a test that acts as several users.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// openDir is a directory that every user reaches, unlike t.TempDir's.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-files-")
	must(t, err)
	must(t, os.Chmod(dir, 0o777))
	t.Cleanup(func() { must(t, files.RemoveAll(context.Background(), dir)) })
	return dir
}

func newWorkers(t testing.TB, o files.WorkerOptions) *files.Workers {
	t.Helper()
	needRoot(t)
	w := files.NewWorkers(o)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func TestWorkersRights(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{})
	dir := openDir(t)
	secret := filepath.Join(dir, "secret")
	must(t, os.WriteFile(secret, nil, 0o600))
	err := w.Do(t.Context(), user, func() error {
		if unix.Gettid() == unix.Getpid() {
			t.Error("runs on the first thread")
		}
		groups, err := unix.Getgroups()
		if err != nil {
			return err
		}
		if unix.Geteuid() != 1000 || unix.Getegid() != 1000 || !slices.Equal(groups, []int{4242}) {
			t.Errorf("ids are %d, %d and %v", unix.Geteuid(), unix.Getegid(), groups)
		}
		if _, err := os.ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("reading root's file: %v, want permission denied", err)
		}
		return os.WriteFile(filepath.Join(dir, "mine"), nil, 0o666)
	})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dir, "mine"), &st))
	if st.Uid != 1000 || st.Gid != 1000 || st.Mode&0o777 != 0o644 {
		t.Errorf("new file is of %d:%d with mode %o, want 1000:1000 and 644", st.Uid, st.Gid, st.Mode&0o777)
	}
	if os.Geteuid() != 0 {
		t.Error("the process's own rights changed")
	}
	must(t, w.Do(t.Context(), root, func() error {
		if _, err := os.ReadFile(secret); err != nil {
			t.Errorf("root reading its file: %v", err)
		}
		if err := unix.Mknod(filepath.Join(dir, "dev"), unix.S_IFCHR|0o600, 1<<8|3); err == nil {
			t.Error("a root thread made a device")
		}
		return nil
	}))
}

// TestAgentRightsAreSeen is the control of TestWorkersRights.
func TestAgentRightsAreSeen(t *testing.T) {
	needRoot(t)
	w := files.NewAgentWorkers(files.WorkerOptions{})
	defer w.Close()
	secret := filepath.Join(openDir(t), "secret")
	must(t, os.WriteFile(secret, nil, 0o600))
	must(t, w.Do(t.Context(), user, func() error { _, err := os.ReadFile(secret); return err }))
}

func TestWorkersRefuseNoChange(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{})
	for _, a := range []account.Account{{UID: 1<<32 - 1, GID: 1}, {UID: 1, GID: 1<<32 - 1}} {
		if err := w.Do(t.Context(), a, func() error { t.Error("ran"); return nil }); err == nil {
			t.Errorf("Do as %d:%d succeeded", a.UID, a.GID)
		}
	}
}

func TestWorkersBound(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{PerUser: 2, Idle: time.Hour})
	in, out := make(chan int), make(chan struct{})
	var wg sync.WaitGroup
	tids := make(map[int]bool)
	for range 20 {
		wg.Go(func() {
			if err := w.Do(t.Context(), user, func() error { in <- unix.Gettid(); <-out; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		tids[<-in] = true
		tids[<-in] = true
		select {
		case <-in:
			t.Fatal("a third call runs")
		default:
		}
		// Another user is not held up.
		must(t, w.Do(t.Context(), root, func() error { return nil }))
		out <- struct{}{}
		out <- struct{}{}
	}
	wg.Wait()
	if len(tids) > 2 {
		t.Errorf("20 calls used %d threads, want 2", len(tids))
	}
}

func TestWorkersContext(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{PerUser: 1})
	started, release := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		first <- w.Do(t.Context(), user, func() error { close(started); <-release; return nil })
	}()
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error)
	go func() { second <- w.Do(ctx, user, func() error { t.Error("ran"); return nil }) }()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v, want canceled", err)
	}
	close(release)
	must(t, <-first)
}

func TestWorkersPanic(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{})
	var tid int
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want boom", r)
			}
		}()
		_ = w.Do(t.Context(), user, func() error { tid = unix.Gettid(); panic("boom") })
	}()
	must(t, w.Do(t.Context(), user, func() error {
		if unix.Gettid() == tid {
			t.Error("a thread was used again after a panic")
		}
		return nil
	}))
}

// TestWorkersThreadsDie waits for idle threads to leave the process.
func TestWorkersThreadsDie(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{Idle: time.Millisecond})
	var tid int
	must(t, w.Do(t.Context(), user, func() error { tid = unix.Gettid(); return nil }))
	if !patience.Until(20*time.Second, func() bool { return unix.Tgkill(unix.Getpid(), tid, 0) != nil }) {
		t.Fatal("an idle thread stays")
	}
	if users, idle := w.Threads(); users != 0 || idle != 0 {
		t.Errorf("%d users and %d idle threads stay", users, idle)
	}
}

func TestWorkersClose(t *testing.T) {
	w := newWorkers(t, files.WorkerOptions{})
	must(t, w.Do(t.Context(), user, func() error { return nil }))
	must(t, w.Close())
	if err := w.Do(t.Context(), user, func() error { return nil }); !errors.Is(err, files.ErrClosed) {
		t.Errorf("Do after Close = %v, want ErrClosed", err)
	}
}

// TestWorkersMountNamespace shows a file that only another mount namespace
// has, and that the agent's stays as it is.
func TestWorkersMountNamespace(t *testing.T) {
	dir := openDir(t)
	w := newWorkers(t, files.WorkerOptions{MountNS: otherMounts(t, dir)})
	must(t, w.Do(t.Context(), user, func() error {
		b, err := os.ReadFile(filepath.Join(dir, "inside"))
		if string(b) != "yes" {
			t.Errorf("inside has %q, %v", b, err)
		}
		return nil
	}))
	if _, err := os.Stat(filepath.Join(dir, "inside")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the agent sees the other namespace's file: %v", err)
	}
}

// otherMounts makes a mount namespace that has a tmpfs with a file on dir.
func otherMounts(t *testing.T, dir string) *os.File {
	t.Helper()
	needRoot(t)
	type result struct {
		f   *os.File
		err error
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread dies
		err := errors.Join(
			unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"),
			os.WriteFile(filepath.Join(dir, "inside"), []byte("yes"), 0o644))
		f, oerr := os.Open("/proc/thread-self/ns/mnt")
		got <- result{f, errors.Join(err, oerr)}
	}()
	r := <-got
	if r.err != nil {
		t.Skip("no mount namespace: ", r.err)
	}
	t.Cleanup(func() { r.f.Close() })
	return r.f
}

func BenchmarkDo(b *testing.B) {
	w := newWorkers(b, files.WorkerOptions{})
	for b.Loop() {
		if err := w.Do(b.Context(), user, func() error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
