package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
)

// What tells the test's own binary to write, and where to be killed.
const (
	killPath = "CARBOY_TEST_DURABLE_PATH"
	killStep = "CARBOY_TEST_DURABLE_STEP"
)

var before, after = bytes.Repeat([]byte("before\n"), 9000), bytes.Repeat([]byte("after\n"), 11000)

func TestMain(m *testing.M) {
	if path := os.Getenv(killPath); path != "" {
		err := durable.Write(path, after, durable.Options{Keep: os.Getenv("KEEP") != "", Step: func(step string) error {
			if step == os.Getenv(killStep) {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // until it arrives
			}
			return nil
		}})
		if err != nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, content) {
		t.Errorf("got %d bytes that begin with %.20q, want %d with %.20q", len(got), got, len(content), content)
	}
}

// wantAlone wants nothing in a directory but the names.
func wantAlone(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("in the directory: %q, want %q", got, names)
	}
}

func TestWrite(t *testing.T) {
	errStep := errors.New("stop")
	stopAt := func(at string) func(string) error {
		return func(step string) error {
			if step == at {
				return errStep
			}
			return nil
		}
	}
	tests := []struct {
		name  string
		there func(t *testing.T, path string)
		o     durable.Options
		want  []byte // nil: nothing
		mode  fs.FileMode
		err   error
	}{
		{name: "new", want: after, mode: 0o600},
		{name: "in-place-of-another", there: write, want: after, mode: 0o600},
		{name: "mode-over-umask", o: durable.Options{Mode: 0o666}, want: after, mode: 0o666},
		{name: "keep-new", o: durable.Options{Keep: true}, want: after, mode: 0o600},
		{name: "keep-what-is-there", there: write, o: durable.Options{Keep: true}, want: before, mode: 0o640, err: fs.ErrExist},
		{name: "fails-when-created", there: write, o: durable.Options{Step: stopAt(durable.Created)}, want: before, mode: 0o640, err: errStep},
		{name: "fails-when-written", there: write, o: durable.Options{Step: stopAt(durable.Written)}, want: before, mode: 0o640, err: errStep},
		{name: "fails-when-named", there: write, o: durable.Options{Step: stopAt(durable.Named)}, want: after, mode: 0o600, err: errStep},
		{name: "a-directory-in-the-way", there: func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, err: unix.EISDIR},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, temp := t.TempDir(), t.TempDir()
			path := filepath.Join(dir, "record")
			for _, o := range []durable.Options{tt.o, {Mode: tt.o.Mode, Keep: tt.o.Keep, Step: tt.o.Step, Temp: temp}} {
				must(t, os.RemoveAll(path))
				if tt.there != nil {
					tt.there(t, path)
				}
				if err := durable.Write(path, after, o); !errors.Is(err, tt.err) {
					t.Fatalf("Write = %v, want %v", err, tt.err)
				}
				wantAlone(t, dir, "record")
				wantAlone(t, temp)
				if tt.want == nil {
					continue
				}
				want(t, path, tt.want)
				if fi, err := os.Stat(path); err != nil || fi.Mode() != tt.mode {
					t.Errorf("mode %v, want %v (%v)", fi.Mode(), tt.mode, err)
				}
			}
		})
	}
}

func write(t *testing.T, path string) { must(t, os.WriteFile(path, before, 0o640)) }

func TestNames(t *testing.T) {
	d, err := beneath.OpenDir(t.TempDir())
	must(t, err)
	defer d.Close()
	for _, name := range []string{"", ".", "..", "/", "a/b", "../a", "/a"} {
		if err := durable.WriteIn(d, name, after, durable.Options{}); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	wantAlone(t, d.Name())
}

// TestLinks puts links where a record is to be, and where its directory was: none
// is followed but what leads to the directory.
func TestLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "canary")
	must(t, os.WriteFile(outside, before, 0o600))
	for _, kind := range []string{"symbolic", "hard"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			link := map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link}[kind]
			must(t, link(outside, path))
			must(t, durable.Write(path, after, durable.Options{}))
			want(t, path, after)
			want(t, outside, before)
			// A write by path does follow.
			must(t, os.Remove(path))
			must(t, link(outside, path))
			must(t, os.WriteFile(path, after, 0o600))
			want(t, outside, after)
			must(t, os.WriteFile(outside, before, 0o600))
		})
	}
	t.Run("directory", func(t *testing.T) {
		top := t.TempDir()
		must(t, os.Mkdir(filepath.Join(top, "own"), 0o700))
		d, err := beneath.OpenDir(filepath.Join(top, "own"))
		must(t, err)
		defer d.Close()
		must(t, os.Rename(filepath.Join(top, "own"), filepath.Join(top, "moved")))
		must(t, os.Symlink(filepath.Dir(outside), filepath.Join(top, "own")))
		must(t, durable.WriteIn(d, "canary", after, durable.Options{}))
		want(t, filepath.Join(top, "moved", "canary"), after)
		want(t, outside, before)
		must(t, durable.Write(filepath.Join(top, "own", "canary"), after, durable.Options{})) // whose path is trusted
		want(t, outside, after)
	})
}

// TestKilled kills a process at each step of its write.
func TestKilled(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	for _, tt := range []struct {
		step, keep string
		want       []byte // nil: nothing
		left       int
	}{
		{durable.Created, "", before, 1},
		{durable.Written, "", before, 1},
		{durable.Named, "", after, 0},
		{durable.Created, "1", nil, 1},
		{durable.Written, "1", nil, 1},
		{durable.Named, "1", after, 1},
	} {
		t.Run(tt.step+map[string]string{"1": "-keep"}[tt.keep], func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "record")
			if tt.keep == "" {
				must(t, os.WriteFile(path, before, 0o600))
			}
			cmd := exec.CommandContext(t.Context(), exe)
			cmd.Env = append(os.Environ(), killPath+"="+path, killStep+"="+tt.step, "KEEP="+tt.keep)
			if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the process ended with %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, durable.Prefix+"*")); err != nil || len(left) != tt.left {
				t.Errorf("left over: %q, want %d (%v)", left, tt.left, err)
			}
			must(t, durable.Sweep(dir))
			if tt.want == nil {
				wantAlone(t, dir)
			} else {
				wantAlone(t, dir, "record")
				want(t, path, tt.want)
			}
			must(t, durable.Write(path, before, durable.Options{}))
			wantAlone(t, dir, "record")
			want(t, path, before)
		})
	}
}

// TestFullDisk writes more than there is room for.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	path := filepath.Join(dir, "record")
	must(t, durable.Write(path, before, durable.Options{}))
	large := make([]byte, 1<<20)
	for _, o := range []durable.Options{{}, {Keep: true}} {
		if err := durable.Write(path, large, o); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("Write = %v, want no space", err)
		}
		want(t, path, before)
		wantAlone(t, dir, "record")
	}
	must(t, durable.Write(path, after, durable.Options{})) // there is room again
	want(t, path, after)
}

// TestAtOnce has several write one record while it is read.
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	must(t, durable.Write(path, before, durable.Options{}))
	var writers sync.WaitGroup
	for _, content := range [][]byte{before, after, before, after} {
		writers.Go(func() {
			for range 25 {
				if err := durable.Write(path, content, durable.Options{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, before) && !bytes.Equal(got, after) {
			t.Fatalf("%d bytes that are neither (%v)", len(got), err)
		}
	}
	wantAlone(t, dir, "record")
}

// TestKeepAtOnce has several make one record: one of them does.
func TestKeepAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	errs := make([]error, 8)
	var writers sync.WaitGroup
	for i := range errs {
		writers.Go(func() { errs[i] = durable.Write(path, []byte{byte(i)}, durable.Options{Keep: true}) })
	}
	writers.Wait()
	made := 0
	for i, err := range errs {
		if err == nil {
			made++
			want(t, path, []byte{byte(i)})
		} else if !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d made it, want 1", made)
	}
	wantAlone(t, dir, "record")
}

// TestFile fills a record bit by bit.
func TestFile(t *testing.T) {
	d, err := beneath.OpenDir(t.TempDir())
	must(t, err)
	defer d.Close()
	for _, commit := range []bool{true, false} {
		f, err := durable.Create(d, durable.Options{})
		must(t, err)
		_, err = f.Write(after)
		must(t, err)
		if commit {
			must(t, f.Commit(d, "record"))
		}
		f.Discard()
		wantAlone(t, d.Name(), "record")
	}
	want(t, filepath.Join(d.Name(), "record"), after)
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("a/tree"), 0o700))
	must(t, os.Mkdir(at("b"), 0o700))
	must(t, durable.Rename(at("a/tree"), at("b/tree"), unix.RENAME_NOREPLACE))
	must(t, os.MkdirAll(at("a/tree/own"), 0o700))
	if err := durable.Rename(at("a/tree"), at("b/tree"), unix.RENAME_NOREPLACE); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Rename = %v, want that it exists", err)
	}
	must(t, durable.Rename(at("a/tree"), at("b/tree"), unix.RENAME_EXCHANGE))
	wantAlone(t, at("b/tree"), "own")
	if err := durable.Rename(at("none"), at("b/other"), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Rename = %v, want that there is none", err)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{durable.Prefix + "x", "record"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, durable.Prefix+"dir"), 0o700))
	must(t, durable.Sweep(dir))
	wantAlone(t, dir, durable.Prefix+"dir", "record")
	must(t, durable.Sweep(filepath.Join(dir, "none")))
}
