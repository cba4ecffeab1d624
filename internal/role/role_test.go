package role_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// about is what a role says of itself.
type about struct {
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Files   []string `json:"files"`
	Session bool     `json:"session"` // it leads one
	Mounts  string   `json:"mounts"`  // its namespace of them
	Read    string   `json:"read"`
	Program string   `json:"program"`
}

const (
	roleAbout = "carboy-test-about"
	roleOther = "carboy-test-other"
	roleFail  = "carboy-test-fail"
	roleCode  = "carboy-test-code"
	roleNo    = "carboy-test-refuse"
	roleDeaf  = "carboy-test-deaf"
	roleFlood = "carboy-test-flood"

	codeNone = 9 // where no role has the name
)

func TestMain(m *testing.M) {
	role.Become(role.Table{
		roleAbout: describe,
		roleOther: describe,
		roleFail:  func() error { return errors.New("it can't\nbe done") },
		roleNo: func() error {
			fmt.Fprintln(os.Stderr, "said before")
			return fmt.Errorf("mount: %w", sandbox.Errorf(sandbox.Invalid, "place %q: it is a file", "/x").WithHint("choose another"))
		},
		roleCode: func() error { return fmt.Errorf("hidden: %w", role.Code(7)) },
		roleDeaf: func() error { return nil },
		roleFlood: func() error {
			_, err := io.Copy(os.Stdout, strings.NewReader(strings.Repeat("x", 1<<20)))
			return err
		},
	})
	if strings.Contains(filepath.Base(os.Args[0]), "carboy") { // it was to be a role: tests would start it for ever
		os.Exit(codeNone)
	}
	os.Exit(m.Run())
}

func describe() error {
	read, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	sid, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	a := about{Args: os.Args, Env: os.Environ(), Session: sid == os.Getpid(), Read: string(read)}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && filepath.IsAbs(to) && !strings.HasPrefix(to, "/proc") && !strings.HasPrefix(to, "/sys") {
			a.Files = append(a.Files, e.Name()+" "+to)
		}
	}
	if a.Program, err = os.Readlink("/proc/self/exe"); err != nil {
		return err
	}
	if a.Mounts, err = os.Readlink("/proc/self/ns/mnt"); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func runner(t *testing.T) *role.Runner {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, or ids of the user's")
	}
	r, err := role.NewRunner(t.TempDir())
	must(t, err)
	return r
}

// TestCommand: a role has the arguments and files that it was given, and nothing else
// of its parent's.
func TestCommand(t *testing.T) {
	t.Setenv("CARBOY_TEST_SECRET", "canary")
	must(t, unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)) // as a daemon does with what it inherits
	open, err := os.Open(t.TempDir())                                     // the parent's own
	must(t, err)
	defer open.Close()
	given, err := os.Open(t.TempDir())
	must(t, err)
	defer given.Close()
	out, err := role.Command(t.Context(), roleAbout, []string{"one", "two"}, given).Output()
	must(t, err)
	var a about
	must(t, json.Unmarshal(out, &a))
	if want := []string{roleAbout, "one", "two"}; !slices.Equal(a.Args, want) {
		t.Errorf("arguments %q, want %q", a.Args, want)
	}
	a.Env = slices.DeleteFunc(a.Env, func(v string) bool { return strings.HasPrefix(v, "GORACE=") })
	if len(a.Env) != 1 || !strings.HasPrefix(a.Env[0], "PATH=/usr/sbin") {
		t.Errorf("environment %q, want a path alone", a.Env)
	}
	if want := []string{"0 /dev/null", "3 " + given.Name()}; !slices.Equal(a.Files, want) {
		t.Errorf("open: %q, want %q", a.Files, want)
	}
	if !a.Session {
		t.Error("it is in its parent's session")
	}
}

// TestNames: argv[0] as a whole is a role's name, and no argument is.
func TestNames(t *testing.T) {
	for _, args := range [][]string{{"/" + roleCode}, {"x" + roleCode}, {roleCode + "x"}, {"carboy", roleCode}} {
		cmd := role.Command(t.Context(), args[0], args[1:])
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != codeNone {
			t.Errorf("%q ends with %d, want %d", args, cmd.ProcessState.ExitCode(), codeNone)
		}
	}
	cmd := role.Command(t.Context(), roleCode, nil)
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the role itself ends with %d, want 7", cmd.ProcessState.ExitCode())
	}
}

// TestIn: roles of another program are executed by that one's descriptor, whatever files
// they are given, and no process of theirs inherits it.
func TestIn(t *testing.T) {
	must(t, unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)) // as a daemon does with what it inherits
	raw, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	path := filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(path, raw, 0o755))
	other, err := os.Open(path)
	must(t, err)
	fit := func(*os.File) error { return nil }
	must(t, errors.Join(role.In(other, fit, roleAbout), other.Close(), os.Remove(path)))
	t.Cleanup(role.Forget)
	own := func(name string, files ...*os.File) (a about) {
		t.Helper()
		out, err := role.Command(t.Context(), name, nil, files...).Output()
		must(t, err)
		must(t, json.Unmarshal(out, &a))
		return a
	}
	// The program's number lies between those of files that it is given: those beside it, and
	// beside the first number that it keeps free, are tried, and some of the others.
	var given []*os.File
	defer func() {
		for _, f := range given {
			_ = f.Close()
		}
	}()
	for n := uintptr(0); n < 400; {
		f, err := os.Open(os.DevNull)
		must(t, err)
		given, n = append(given, f), f.Fd()
	}
	const free = 16 // for what starting a process opens
	for _, f := range given[:free] {
		must(t, f.Close())
	}
	for _, f := range given[free:] {
		if n := f.Fd(); n%32 != 0 && (n < 253 || n > 323 || 259 < n && n < 317) {
			continue
		}
		a := own(roleAbout, f)
		if a.Program != path+" (deleted)" || !slices.Equal(a.Files, []string{"0 /dev/null", "3 /dev/null"}) {
			t.Fatalf("with file %d: %q, open %q", f.Fd(), a.Program, a.Files)
		}
	}
	if a := own(roleOther); a.Program == path+" (deleted)" {
		t.Error("a role of this program is executed by the other")
	}
}

// TestInUnfit: a program that fails its check is not executed, and is checked once.
func TestInUnfit(t *testing.T) {
	other, err := os.Open("/proc/self/exe")
	must(t, err)
	defer other.Close()
	looks, unfit := 0, errors.New("another program")
	must(t, role.In(other, func(f *os.File) error {
		looks++
		if f.Name() != other.Name() || f.Fd() == other.Fd() {
			t.Errorf("it is looked at by %s, %d", f.Name(), f.Fd())
		}
		return unfit
	}, roleAbout))
	t.Cleanup(role.Forget)
	for range 2 {
		if out, err := role.Command(t.Context(), roleAbout, nil).Output(); !errors.Is(err, unfit) || len(out) > 0 {
			t.Errorf("Command: %v, %q", err, out)
		}
		if _, _, err := role.Stopped(roleAbout, nil, syscall.SysProcAttr{}); !errors.Is(err, unfit) {
			t.Errorf("Stopped: %v", err)
		}
	}
	if looks != 1 {
		t.Errorf("it was looked at %d times", looks)
	}
}

func TestExit(t *testing.T) {
	for name, tt := range map[string]struct {
		role, said string
		code       int
	}{
		"well":  {roleDeaf, "", 0},
		"error": {roleFail, "it can't\nbe done\n", 1},
		"code":  {roleCode, "", 7},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			cmd := role.Command(t.Context(), tt.role, nil)
			cmd.Stderr = &said
			if _ = cmd.Run(); cmd.ProcessState.ExitCode() != tt.code || said.String() != tt.said {
				t.Errorf("code %d and %q, want %d and %q", cmd.ProcessState.ExitCode(), said.String(), tt.code, tt.said)
			}
		})
	}
}

// TestRefusal: an error that a user may read is one for the process that ran the role.
func TestRefusal(t *testing.T) {
	err := runner(t).Run(t.Context(), roleNo, strings.NewReader(""), io.Discard)
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Invalid || e.Msg != `place "/x": it is a file` || e.Hint != "choose another" {
		t.Errorf("the error is %#v", err)
	}
	err = runner(t).Run(t.Context(), roleFail, strings.NewReader(""), io.Discard)
	if _, ok := errors.AsType[*sandbox.Error](err); ok || err == nil || err.Error() != "it can't\nbe done" {
		t.Errorf("one of no kind is %#v", err)
	}
}

func TestRun(t *testing.T) {
	r := runner(t)
	own, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	var a about
	must(t, r.Ask(t.Context(), roleAbout, map[string]int{"a": 1}, &a, strings.NewReader("more")))
	if a.Read != "{\"a\":1}\nmore" {
		t.Errorf("it read %q", a.Read)
	}
	if a.Mounts == own || a.Mounts == "" {
		t.Errorf("its mounts are in %q, ours in %q", a.Mounts, own)
	}
	if err := r.Run(t.Context(), roleFail, strings.NewReader(""), io.Discard); err == nil || err.Error() != "it can't\nbe done" {
		t.Errorf("Run = %v, want what it said", err)
	}
	if err := r.Run(t.Context(), roleDeaf, strings.NewReader(strings.Repeat("x", 1<<20)), io.Discard); err != nil {
		t.Errorf("one that wants no input: %v", err)
	}
	if err := r.Ask(t.Context(), roleDeaf, nil, &a, nil); err == nil || !strings.Contains(err.Error(), "read answer") {
		t.Errorf("one that does not answer: %v", err)
	}
	if err := r.Run(t.Context(), roleFlood, strings.NewReader(""), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("Run = %v, want why nothing could be written", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	in, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("x")) // it runs
		cancel(errBroken)
		w.Close()
	}()
	if err := r.Run(ctx, roleAbout, in, io.Discard); !errors.Is(err, errBroken) {
		t.Errorf("Run = %v, want why its context ended", err)
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestStopped: the process stands still until it is ended, and has no environment.
func TestStopped(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, end, err := role.Stopped(roleCode, []string{"x"}, syscall.SysProcAttr{})
	must(t, err)
	var ws syscall.WaitStatus
	_, err = syscall.Wait4(p.Pid, &ws, 0, nil)
	must(t, err)
	if !ws.Stopped() {
		t.Errorf("it did not stop: %#x", uint32(ws))
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Pid)); err != nil || len(env) > 0 {
		t.Errorf("its environment is %q (%v)", env, err)
	}
	end()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.Pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there after its end (%v)", err)
	}
}

func TestUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to map another's id")
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 54321, Size: 1}}
	ns, err := role.UserNamespace(ids, ids)
	must(t, err)
	defer ns.Close()
	own, err := os.Stat("/proc/self/ns/user")
	must(t, err)
	if got, err := ns.Stat(); err != nil || os.SameFile(own, got) {
		t.Errorf("it is our own namespace (%v)", err)
	}
}

func TestDelete(t *testing.T) {
	r := runner(t)
	top := t.TempDir()
	dir, canary := filepath.Join(top, "dir"), filepath.Join(top, "canary")
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	must(t, os.WriteFile(canary, nil, 0o600))
	must(t, os.Symlink(top, filepath.Join(dir, "a/way")))
	for range 2 { // what is not there is no error
		must(t, r.Delete(t.Context(), dir))
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there still (%v)", err)
	}
	if _, err := os.Lstat(canary); err != nil {
		t.Error(err)
	}
}

func TestMeasure(t *testing.T) {
	r := runner(t)
	top := t.TempDir()
	dir, outside := filepath.Join(top, "dir"), filepath.Join(top, "outside")
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a/b/f"), make([]byte, 100<<10), 0o600))
	must(t, os.WriteFile(outside, make([]byte, 1<<20), 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "a/way")))
	if n, err := r.Measure(t.Context(), dir); err != nil || n < 100<<10 || n > 200<<10 {
		t.Errorf("got %d, %v, want some 100 KiB", n, err)
	}
	if _, err := r.Measure(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("what is not there was counted")
	}
}

func TestAwaitReady(t *testing.T) {
	for name, tt := range map[string]struct{ said, want string }{
		"ready":         {"ready\n", ""},
		"and-goes-on":   {"ready\nmore", ""},
		"words":         {"it can't\nbe done\n", "it can't\nbe done"},
		"no-whole-line": {"ready", "ready"},
		"nothing":       {"", role.ErrNotReady.Error()},
		"a-blank-line":  {"\n", role.ErrNotReady.Error()},
		"too-much":      {strings.Repeat("x", 2*role.MaxWords), strings.Repeat("x", role.MaxWords)},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := role.AwaitReady(strings.NewReader(tt.said)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	var out bytes.Buffer
	must(t, role.Ready(&out))
	must(t, role.AwaitReady(&out))
}

// TestWords: the last that is said is kept.
func TestWords(t *testing.T) {
	var w role.Words
	for _, s := range []string{"ab", strings.Repeat("c", role.MaxWords-3), "de", "", "fg"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := w.Error(t.Context(), nil).Error(), strings.Repeat("c", role.MaxWords-4)+"defg"; got != want {
		t.Errorf("kept %d bytes, %.10q to %q", len(got), got, got[len(got)-5:])
	}
	_, _ = w.Write([]byte(strings.Repeat("x", role.MaxWords) + "y"))
	if got := w.Error(t.Context(), nil).Error(); got != strings.Repeat("x", role.MaxWords-1)+"y" {
		t.Errorf("kept %.10q", got)
	}
	exit := errors.New("exit")
	if got := new(role.Words).Error(t.Context(), exit); !errors.Is(got, exit) {
		t.Errorf("without words: %v", got)
	}
}
