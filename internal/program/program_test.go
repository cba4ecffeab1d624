package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
)

const (
	sayVar  = "CARBOY_TEST_SAY"
	killVar = "CARBOY_TEST_KILLED_IN"
)

// The programs of these tests are this one: each says who it is by what follows its end.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(sayVar) != "":
		os.Exit(say())
	case os.Getenv(killVar) != "":
		all := []packed{whoseEnd(killed{})}
		if _, err := open(context.Background(), home.Dirs{State: os.Getenv(killVar)}, all); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// say writes the last bytes of this very file, and waits for the end of its input.
func say() int {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return 4
	}
	end := make([]byte, 8)
	if fi, err := f.Stat(); err != nil {
		return 5
	} else if _, err := f.ReadAt(end, fi.Size()-int64(len(end))); err != nil {
		return 6
	}
	fmt.Printf("%s\n", end)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// killed is a reader by which its process is.
type killed struct{}

func (killed) Read([]byte) (int, error) {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func (killed) Close() error { return nil }

// whoseEnd is a program of which a part is read before the rest.
func whoseEnd(rest io.Reader) packed {
	p := pack("carboy-test", bytes.Repeat([]byte("x"), 1<<20))
	whole := p.open
	p.open = func() (io.ReadCloser, error) {
		f, err := whole()
		if err != nil {
			return nil, err
		}
		return io.NopCloser(io.MultiReader(io.LimitReader(f, 40), rest)), nil
	}
	return p
}

func pack(name string, raw []byte) packed {
	small := frame(raw)
	sum := sha256.Sum256(raw)
	return packed{name, hex.EncodeToString(sum[:]), int64(len(raw)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(small)), nil
	}}
}

// frame is what zstd makes of data that can't be made smaller (RFC 8878, 3.1.1): under the race
// detector, to compress a test binary takes seconds.
func frame(raw []byte) []byte {
	const magic, ofOneSegment, mostOfBlock = 0xfd2fb528, 0xa0, 128 << 10 // the size follows in four bytes
	f := binary.LittleEndian.AppendUint32(nil, magic)
	f = binary.LittleEndian.AppendUint32(append(f, ofOneSegment), uint32(len(raw)))
	for last := 0; last == 0; {
		n := min(len(raw), mostOfBlock)
		if n == len(raw) {
			last = 1
		}
		head := last | n<<3 // a raw block
		f = append(append(f, byte(head), byte(head>>8), byte(head>>16)), raw[:n]...)
		raw = raw[n:]
	}
	return f
}

var self = sync.OnceValue(func() []byte {
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return raw
})

// saying is a program that says those eight bytes.
func saying(name, what string) packed { return pack(name, append(slices.Clone(self()), what...)) }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func newHome(tb testing.TB) home.Dirs {
	tb.Helper()
	base, err := filepath.EvalSymlinks(tb.TempDir())
	d := home.Dirs{State: base + "/state", Run: base + "/run", Cache: base + "/cache"}
	if err := errors.Join(err, d.Create()); err != nil {
		tb.Fatal(err)
	}
	return d
}

// says executes a program of a set, as a daemon is: with files of its own, one of which
// has the number before the program's.
func says(t *testing.T, s *Set, name string) string {
	t.Helper()
	path, err := s.Path(name)
	must(t, err)
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	cmd := exec.Command(path)
	cmd.Env, cmd.ExtraFiles = []string{sayVar + "=1"}, []*os.File{null}
	out, err := cmd.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func names(t *testing.T, d home.Dirs) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(at(d.State).dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func opened(t *testing.T, d home.Dirs, all ...packed) *Set {
	t.Helper()
	s, err := open(t.Context(), d, all)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// TestOpen: each is unpacked once, nobody can write to it, and it is executed.
func TestOpen(t *testing.T) {
	d, a, b := newHome(t), saying("carboy-a", "i am one"), saying("carboy-b", "i am two")
	s := opened(t, d, a, b)
	if got := says(t, s, "carboy-a") + " " + says(t, s, "carboy-b"); got != "i am one i am two" || s.Note != "" {
		t.Errorf("they say %q, with note %q", got, s.Note)
	}
	path := filepath.Join(at(d.State).dir, a.fileName())
	before, err := os.Stat(path)
	must(t, err)
	if before.Mode().Perm() != 0o555 {
		t.Errorf("its mode is %v", before.Mode())
	}
	opened(t, d, a, b)
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("it was unpacked twice")
	}
	if got, want := names(t, d), []string{a.fileName(), b.fileName(), lockName}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestUntrue: a file by a program's name that is not that program, whoever made it so, is
// not executed; the program takes its place.
func TestUntrue(t *testing.T) {
	other := saying("carboy-other", "an enemy")
	raw := append(slices.Clone(self()), "an enemy"...)
	for name, spoil := range map[string]func(t *testing.T, path string){
		"changed": func(t *testing.T, path string) {
			must(t, os.Chmod(path, 0o755), os.WriteFile(path, raw, 0), os.Chmod(path, 0o555))
		},
		"cut": func(t *testing.T, path string) { must(t, os.Truncate(path, 1000)) },
		"longer": func(t *testing.T, path string) {
			must(t, os.Chmod(path, 0o755))
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			_, err = f.WriteString("x")
			must(t, err, f.Close(), os.Chmod(path, 0o555))
		},
		"empty": func(t *testing.T, path string) { must(t, os.Remove(path), os.WriteFile(path, nil, 0o555)) },
		"gone":  func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"linked": func(t *testing.T, path string) {
			at := filepath.Join(t.TempDir(), "enemy")
			must(t, os.WriteFile(at, raw, 0o555), os.Remove(path), os.Symlink(at, path))
		},
		"writable": func(t *testing.T, path string) { must(t, os.Chmod(path, 0o755)) },
		"open":     func(t *testing.T, path string) { must(t, os.Chmod(path, 0o777)) },
		"another's": func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			must(t, os.Chown(path, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := newHome(t), saying("carboy-a", "i am one")
			opened(t, d, p)
			path := filepath.Join(at(d.State).dir, p.fileName())
			spoil(t, path)
			if f, err := at(d.State).find(p); err == nil {
				f.Close()
				t.Error("it passes for the program")
			}
			if got := says(t, opened(t, d, p), p.name); got != "i am one" {
				t.Errorf("it says %q", got)
			}
			if f, err := at(d.State).find(p); err != nil {
				t.Errorf("the program is not there again: %v", err)
			} else {
				f.Close()
			}
		})
	}
	// That the other would say so, if it were executed.
	d := newHome(t)
	if got := says(t, opened(t, d, other), other.name); got != "an enemy" {
		t.Errorf("the other says %q", got)
	}
}

// TestHanded: what the daemon is handed is opened without reading it, where it looks fit, and
// is found out by who executes it.
func TestHanded(t *testing.T) {
	d, p := newHome(t), saying(order.GVisor, "i am one")
	path := filepath.Join(at(d.State).dir, p.fileName())
	if got := opened(t, d, p).Handed(p.name, 9).Path; got != path {
		t.Errorf("once it is unpacked it is handed down as %s, want %s", got, path)
	}
	must(t, os.Chmod(path, 0o755), os.WriteFile(path, append(slices.Clone(self()), "an enemy"...), 0), os.Chmod(path, 0o555))
	s := opened(t, d, p)
	if got := says(t, s, p.name); got != "an enemy" {
		t.Errorf("it says %q: it was read", got)
	}
	if err := s.Handed(p.name, 9).Check(s.File(p.name)); !errors.Is(err, order.ErrUnfit) {
		t.Errorf("it passes: %v", err)
	}
	s = opened(t, d, p)
	if err := s.Handed(p.name, 9).Check(s.File(p.name)); err != nil || says(t, s, p.name) != "i am one" {
		t.Errorf("then it is not unpacked anew: %v", err)
	}
	must(t, os.Truncate(path, 1000))
	if got := says(t, opened(t, d, p), p.name); got != "i am one" {
		t.Errorf("where it does not look fit, it says %q", got)
	}
}

// TestReplaced: what was opened is executed, whatever has its name by then.
func TestReplaced(t *testing.T) {
	d, p := newHome(t), saying("carboy-a", "i am one")
	s := opened(t, d, p)
	path := filepath.Join(at(d.State).dir, p.fileName())
	must(t, os.Remove(path), os.WriteFile(path, append(slices.Clone(self()), "an enemy"...), 0o555))
	if got := says(t, s, p.name); got != "i am one" {
		t.Errorf("it says %q", got)
	}
}

// TestAtOnce: those who unpack at the same time all get it, and it is there once.
func TestAtOnce(t *testing.T) {
	d, p := newHome(t), saying("carboy-a", "i am one")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := open(t.Context(), d, []packed{p})
			if err != nil || s.Note != "" {
				t.Errorf("%v, %q", err, s.Note)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, want := names(t, d), []string{p.fileName(), lockName}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestKilled: one that is killed while it unpacks leaves nothing by the program's name,
// and what else it leaves goes with the next.
func TestKilled(t *testing.T) {
	d := newHome(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{killVar + "=" + d.State}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it ended by %v: %s", err, out)
	}
	left := names(t, d)
	if len(left) != 2 || !strings.HasPrefix(left[0], fresh) || left[1] != lockName {
		t.Errorf("it left %q", left)
	}
	p := saying("carboy-a", "i am one")
	opened(t, d, p)
	if got, want := names(t, d), []string{p.fileName(), lockName}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestSweep: programs of other versions go once nobody executes them and they are old
// enough, and no other file does.
func TestSweep(t *testing.T) {
	d, older, now := newHome(t), saying("carboy-a", "i am old"), saying("carboy-a", "i am new")
	s := opened(t, d, older)
	path, err := s.Path(older.name)
	must(t, err)
	cmd := exec.Command(path)
	cmd.Env = []string{sayVar + "=1"}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 8)) // it runs
	must(t, err)
	notOurs := filepath.Join(at(d.State).dir, "carboy-notes")
	must(t, os.WriteFile(notOurs, nil, 0o600))

	opened(t, d, now)
	if got := names(t, d); !slices.Contains(got, older.fileName()) || !slices.Contains(got, now.fileName()) {
		t.Errorf("while it is executed there are %q", got)
	}
	must(t, in.Close(), cmd.Wait())
	opened(t, d, now)
	if got := names(t, d); !slices.Contains(got, older.fileName()) {
		t.Errorf("who unpacked it a moment ago finds %q", got)
	}
	long := time.Now().Add(-spared)
	must(t, os.Chtimes(filepath.Join(at(d.State).dir, older.fileName()), long, long))
	opened(t, d, now)
	if got, want := names(t, d), []string{now.fileName(), "carboy-notes", lockName}; !slices.Equal(got, want) {
		t.Errorf("afterwards there are %q, want %q", got, want)
	}
}

// TestInMemory: where no program can be kept, or executed, all are in memory, whole and
// sealed, and a note says why.
func TestInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tt := range []struct {
		name, options, note string
		flags               uintptr
	}{
		{"noexec", "size=64m", "noexec", unix.MS_NOEXEC},
		{"full", "size=1m", "no space left", 0},
		{"inodes", "size=64m,nr_inodes=4", "no space left", 0}, // for one of the two
		{"read-only", "size=64m", "read-only", unix.MS_RDONLY},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, p, q := newHome(t), saying("carboy-a", "i am one"), saying("carboy-b", "i am two")
			done := make(chan struct{})
			go func() { // whose thread, with its mounts, ends with it
				defer close(done)
				runtime.LockOSThread()
				must(t, unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
				must(t, unix.Mount("tmpfs", d.State, "tmpfs", tt.flags, "mode=700,"+tt.options))
				s, err := open(t.Context(), d, []packed{p, q})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if !strings.Contains(s.Note, tt.note) || !strings.Contains(s.Note, "in memory") {
					t.Errorf("the note is %q, want why: %s", s.Note, tt.note)
				}
				if strings.Contains(s.Note, "\n") {
					t.Errorf("the note has several lines: %q", s.Note)
				}
				sealed(t, s.File(p.name))
				if got := says(t, s, p.name); got != "i am one" {
					t.Errorf("it says %q", got)
				}
				if got := names(t, d); slices.ContainsFunc(got, func(n string) bool { return n != lockName }) {
					t.Errorf("there are %q", got)
				}
			}()
			<-done
		})
	}
}

func sealed(t *testing.T, f *os.File) {
	t.Helper()
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY, 0)
	if err == nil {
		_, err = w.Write([]byte("x"))
		w.Close()
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		t.Errorf("a program in memory can be written to: %v", err)
	}
}

// TestBorrow: one who borrows leaves nothing, and takes what is there.
func TestBorrow(t *testing.T) {
	d, p := newHome(t), saying("carboy-a", "i am one")
	s, err := borrow(d, []packed{p})
	must(t, err)
	if got := says(t, s, p.name); got != "i am one" || names(t, d) != nil {
		t.Errorf("it says %q, and left %q", got, names(t, d))
	}
	must(t, s.Close())
	opened(t, d, p)
	s, err = borrow(d, []packed{p})
	must(t, err)
	defer s.Close()
	there, err := os.Stat(filepath.Join(at(d.State).dir, p.fileName()))
	must(t, err)
	got, err := s.File(p.name).Stat()
	must(t, err)
	if !os.SameFile(there, got) {
		t.Error("it did not take the one that is there")
	}
}

// TestLies: what is packed is not what the index says.
func TestLies(t *testing.T) {
	d, p := newHome(t), saying("carboy-a", "i am one")
	p.digest = strings.Repeat("0", 64)
	if s, err := open(t.Context(), d, []packed{p}); !errors.Is(err, order.ErrUnfit) {
		t.Errorf("%v, %v", s, err)
	}
	if got := names(t, d); !slices.Equal(got, []string{lockName}) {
		t.Errorf("there are %q", got)
	}
}

// TestCarried: it holds either way, with the programs built or on a clean checkout.
func TestCarried(t *testing.T) {
	all, err := carried()
	if Built() != (err == nil) || err != nil && !errors.Is(err, ErrNotBuilt) {
		t.Fatalf("Built says %v, and carried %v", Built(), err)
	}
	for _, p := range all {
		var begin bytes.Buffer
		if err := p.unpack(&begin); err != nil || !bytes.HasPrefix(begin.Bytes(), []byte("\x7fELF")) || int64(begin.Len()) != p.size {
			t.Errorf("%s: %v, %d bytes, want %d of an executable", p.name, err, begin.Len(), p.size)
		}
		if sum := sha256.Sum256(begin.Bytes()); hex.EncodeToString(sum[:]) != p.digest {
			t.Errorf("%s: it is another than the index says", p.name)
		}
	}
}
