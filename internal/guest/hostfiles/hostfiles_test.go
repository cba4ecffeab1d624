package hostfiles_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/hostfiles"
)

// holding is the variable that makes this program hold files of a kind.
const holding = "HOSTFILES_TEST_HOLD"

const held = 600 // of each

var kinds = map[string]func() error{
	"nothing": func() error { return nil },
	"descriptors": func() error {
		_, err := unix.Dup(0)
		return err
	},
	"shared-memory": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		return err
	},
	"mapped-files": func() error {
		f, err := os.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		return err
	},
	"a-thread's-own": func() error {
		_, err := unix.Dup(0)
		return err
	},
}

func TestMain(m *testing.M) {
	kind := os.Getenv(holding)
	if kind == "" {
		os.Exit(m.Run())
	}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if kind == "a-thread's-own" {
			err = unix.Unshare(unix.CLONE_FILES)
		}
		for range held {
			if err == nil {
				err = kinds[kind]()
			}
		}
		ready <- err
		select {}
	}()
	fmt.Println("ready", <-ready)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// hold starts a process that holds files of a kind.
func hold(t *testing.T, kind string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), holding+"="+kind)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready <nil>\n" {
		t.Fatalf("%s: %q, %v", kind, line, err)
	}
	return cmd
}

func TestHeld(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			got := hostfiles.Held(hold(t, kind).Process.Pid)
			least, most := uint64(held), uint64(held+150)
			if kind == "nothing" { // the control
				least, most = 1, 150
			}
			if got < least || got > most {
				t.Errorf("got %d, want from %d to %d", got, least, most)
			}
		})
	}
	if got := hostfiles.Held(1 << 30); got != 0 {
		t.Errorf("nobody holds %d", got)
	}
}

func TestMapped(t *testing.T) {
	line := func(offset, inode int) string {
		return fmt.Sprintf("7f0000000000-7f0000001000 r--p %08x 00:1c %d    /a b\n", offset, inode)
	}
	tests := []struct {
		name, text string
		want       uint64
	}{
		{"empty", "", 0},
		{"no-file", "7ffd1000-7ffd2000 rw-p 00000000 00:00 0 [stack]\n", 0},
		{"a-program", line(0, 7) + line(0x1000, 7) + line(0x2000, 7) + line(0x3000, 7), 1},
		{"two-programs", line(0, 7) + line(0x1000, 7) + line(0, 8) + line(0x1000, 8), 2},
		{"one-page-again-and-again", strings.Repeat(line(0, 7), 100), 100},
		{"pages-in-order", func() (s string) {
			for n := range 80 {
				s += line(n<<12, 7)
			}
			return s
		}(), 10},
		{"none-that-it-knows", "x\n1-2 r--p zz 0:0 7\n", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := hostfiles.Mapped(strings.NewReader(tt.text)); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// Of an instance that holds more than its part those go that hold the most, and
// only while the host's files are short.
func TestWatch(t *testing.T) {
	tests := []struct {
		name, counter string
		share         uint64
		gone          bool
	}{
		{"short", "700\t0\t1000\n", held, true},
		{"short-within-the-part", "700\t0\t1000\n", 4 * held, false},
		{"enough", "400\t0\t1000\n", held, false},
		{"without-a-bound", "1000\t0\t9223372036854775807\n", held, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			large, small := hold(t, "shared-memory"), hold(t, "nothing")
			counter := filepath.Join(t.TempDir(), "file-nr")
			if err := os.WriteFile(counter, []byte(tt.counter), 0o600); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var freezes []bool
			w, err := hostfiles.Open(hostfiles.Options{
				Share: tt.share, Counter: counter, Log: slog.New(slog.DiscardHandler),
				Processes: func() ([]int, error) { return []int{small.Process.Pid, large.Process.Pid, 1 << 30}, nil },
				Freeze:    func(frozen bool) error { freezes = append(freezes, frozen); return nil },
			})
			if err == nil {
				err = w.Look()
			}
			if err != nil {
				t.Fatal(err)
			}
			counted := strings.HasPrefix(tt.name, "short")
			if want := []bool{true, false}; counted && !slices.Equal(freezes, want) || !counted && len(freezes) > 0 {
				t.Errorf("freezes: %t", freezes)
			}
			if w.Ended(small.Process.Pid) {
				t.Error("the small one was ended")
			}
			if got := w.EndedSince(began); got != tt.gone {
				t.Errorf("any was ended: %t, want %t", got, tt.gone)
			}
			if got := w.Ended(large.Process.Pid); got != tt.gone {
				t.Fatalf("the large one was ended: %t, want %t", got, tt.gone)
			}
			if tt.gone {
				if err := large.Wait(); err == nil || err.Error() != "signal: killed" {
					t.Errorf("the large one: %v", err)
				}
			}
		})
	}
}

func FuzzParseCounter(f *testing.F) {
	for _, s := range []string{"", "1\t0\t2\n", "1 0", "-1 0 2", "1 0 99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		taken, most, err := hostfiles.ParseCounter(text)
		if n := len(strings.Fields(text)); err == nil && n != 3 {
			t.Errorf("%q: got %d of %d from %d fields", text, taken, most, n)
		}
	})
}

func FuzzMapped(f *testing.F) {
	f.Add("1-2 r--p 00000000 00:1c 7 /a\n1-2 r--p 00001000 00:1c 7 /a\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got := hostfiles.Mapped(strings.NewReader(text)); got > uint64(strings.Count(text, "\n")+1) {
			t.Errorf("%q: got %d, more than lines", text, got)
		}
	})
}
