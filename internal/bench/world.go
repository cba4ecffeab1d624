package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	cleanupTime = 2 * time.Minute  // for each thing that is taken away
	waitDelay   = 10 * time.Second // for pipes of a command that has ended
	maxOutput   = 1 << 20
	maxStderr   = 4 << 10
)

// errNoProcess is what reading of a process says that has ended.
var errNoProcess error = unix.ESRCH

// world is where one run happens: its directory, its processes, and what is
// to be taken away at its end.
type world struct {
	carboy string // our own program
	gvisor string // gVisor's, of those that it carries
	dir    string
	tag    string // is in the names of what outlives a process
	quick  bool

	mu    sync.Mutex
	mine  map[int]bool // processes that somebody waits for
	undo  []undo
	left  []string // what could not be taken away
	cache sync.Map // what is made once: see once
}

type undo struct {
	what string
	f    func(ctx context.Context) error
}

// newWorld makes one in a directory below parent, "" for the usual place. From
// then on this process is the parent of every process that loses its own.
func newWorld(parent, carboy string, quick bool) (*world, error) {
	dir, err := os.MkdirTemp(parent, "carboy-bench-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt processes: %w", err), os.Remove(dir))
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return &world{carboy: carboy, dir: dir, tag: "carboy-bench-" + hex.EncodeToString(b[:]), quick: quick, mine: map[int]bool{}}, nil
}

// later calls f at the end of what is going on now: of the group whose
// cases are prepared, else of the run.
func (w *world) later(what string, f func(ctx context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undo = append(w.undo, undo{what, f})
}

// mark is how much there is to be taken away; unwind goes back to there.
func (w *world) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.undo)
}

// unwind takes away what came after mark, the newest first, even where ctx
// has ended.
func (w *world) unwind(ctx context.Context, mark int) {
	for {
		w.mu.Lock()
		if len(w.undo) <= mark {
			w.mu.Unlock()
			return
		}
		u := w.undo[len(w.undo)-1]
		w.undo = w.undo[:len(w.undo)-1]
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		if err := u.f(ctx); err != nil {
			w.left = append(w.left, fmt.Sprintf("%s: %v", u.what, err))
		}
		cancel()
	}
}

// close takes everything away and returns what could not be.
func (w *world) close(ctx context.Context) []string {
	w.unwind(ctx, 0)
	if err := w.endProcesses(ctx); err != nil {
		w.left = append(w.left, "processes: "+err.Error())
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.left = append(w.left, err.Error())
	}
	return w.left
}

// endProcesses kills what is left of the processes that this process started or
// was left as the parent of, and says that there were any.
func (w *world) endProcesses(ctx context.Context) error {
	var killed []string
	for ctx.Err() == nil {
		w.reap()
		all, err := readProcesses()
		if err != nil {
			return err
		}
		rest := pidsOf(below(all, os.Getpid()), os.Getpid())
		if len(rest) == 0 {
			break
		}
		for _, pid := range rest {
			name := fmt.Sprint(pid)
			if !slices.Contains(killed, name) {
				killed = append(killed, name)
			}
			_ = unix.Kill(pid, unix.SIGKILL) // one that has just ended needs none
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(killed) > 0 {
		return fmt.Errorf("had to be killed: %s", strings.Join(killed, " "))
	}
	return nil
}

// once returns what f makes the first time that name is asked for. A failure
// is remembered as well.
func once[T any](w *world, name string, f func() (T, error)) (T, error) {
	v, _ := w.cache.LoadOrStore(name, sync.OnceValues(f))
	return v.(func() (T, error))()
}

// command is a program to run.
type command struct {
	argv  []string
	argv0 string   // what it is told that its name is; "": argv[0]
	env   []string // on top of this process's own
	// detaches says that what it starts goes on: nothing of its output is
	// read, as that would not end.
	detaches bool
}

// outcome is how a command went.
type outcome struct {
	first time.Duration // to the first byte of output; 0 where there was none
	whole time.Duration // until it had ended
	out   []byte
}

// run runs c to its end. An exit code that is not 0 is an error.
func (w *world) run(ctx context.Context, c command) (outcome, error) {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	if c.argv0 != "" {
		cmd.Args[0] = c.argv0
	}
	cmd.Env = append(os.Environ(), c.env...)
	// A Ctrl-C is for this process, which ends the others in their turn.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = waitDelay
	errs := &tail{}
	if c.detaches {
		return w.runDetached(cmd)
	}
	cmd.Stderr = errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	start := time.Now()
	if err := w.start(cmd); err != nil {
		return outcome{}, err
	}
	var o outcome
	first := make([]byte, 1)
	if n, _ := stdout.Read(first); n == 1 {
		o.first = time.Since(start)
		o.out = append(o.out, first...)
	}
	rest, rerr := io.ReadAll(io.LimitReader(stdout, maxOutput))
	o.out = append(o.out, rest...)
	_, _ = io.Copy(io.Discard, stdout) // so that it is not stopped by a pipe that is full
	err = w.wait(cmd)
	o.whole = time.Since(start)
	if err = errors.Join(err, rerr); err != nil {
		if len(errs.b) == 0 {
			_, _ = errs.Write(o.out) // it never fails; some say there what is wrong
		}
		return o, fmt.Errorf("%s: %w%s", filepath.Base(cmd.Args[0]), err, errs)
	}
	return o, nil
}

// runDetached runs cmd with a file for what it says of failures.
func (w *world) runDetached(cmd *exec.Cmd) (o outcome, err error) {
	f, err := os.CreateTemp(w.dir, "stderr-")
	if err != nil {
		return o, err
	}
	defer func() {
		_ = f.Close() // nothing was written by us
		_ = os.Remove(f.Name())
	}()
	cmd.Stderr = f
	start := time.Now()
	if err := w.start(cmd); err != nil {
		return o, err
	}
	err = w.wait(cmd)
	o.whole = time.Since(start)
	if err != nil {
		said := make([]byte, maxStderr)
		n, _ := f.ReadAt(said, 0)
		return o, fmt.Errorf("%s: %w%s", filepath.Base(cmd.Args[0]), err, &tail{b: said[:n]})
	}
	return o, nil
}

// start is cmd.Start, for a process that reap leaves to its own waiter.
func (w *world) start(cmd *exec.Cmd) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	w.mine[cmd.Process.Pid] = true
	return nil
}

// wait is cmd.Wait.
func (w *world) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mine, cmd.Process.Pid)
	return err
}

// reap takes note of the ends of processes that have lost their own parents.
func (w *world) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, err := readProcesses()
	if err != nil {
		return // the next time, then
	}
	for _, p := range all {
		if p.zombie && p.parent == os.Getpid() && !w.mine[p.pid] {
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		}
	}
}

// tail keeps the beginning of what is written to it.
type tail struct{ b []byte }

// Write keeps as much of p as fits.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), maxStderr-len(t.b))]...)
	return len(p), nil
}

// String is what was written, in one line after a colon; "" for nothing.
func (t *tail) String() string {
	text := string(bytes.TrimSpace(t.b))
	if text == "" {
		return ""
	}
	const most = 400
	if text = strings.Join(strings.Fields(text), " "); len(text) > most {
		text = text[:most/2] + " … " + text[len(text)-most/2:]
	}
	return ": " + strings.ToValidUTF8(text, "?")
}

// look finds a program, in the directories of administrators too.
func look(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in PATH", name)
}
