package role

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// self is this binary, also where another has taken its place on disk.
const self = "/proc/self/exe"

// elsewhere has the roles of other programs: the path of each, once it was found fit.
var elsewhere = map[string]func() (string, error){}

// kept are those programs, which stay open.
var kept []*os.File

const (
	// firstProgram is above the numbers that children have of their own.
	firstProgram = 256
	// beforeProgram is how many numbers before a program's are taken, too. Go gives the
	// files that it moves in a child, before it executes something, the numbers after the
	// highest that it hands down: that must not be the program's.
	beforeProgram = 64
)

// In says that the roles of those names belong to another program, which is open as f. This
// process keeps it open, and checks it once, before the first such role starts: where that
// fails, none starts. A main calls In before it starts anything.
func In(f *os.File, check func(*os.File) error, names ...string) error {
	last := firstProgram - 1
	for range beforeProgram + 1 {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, last+1)
		if err == nil && last >= firstProgram && fd != last+1 {
			err = unix.EBUSY
		}
		if err != nil {
			return fmt.Errorf("keep the program of %s open: %w", strings.Join(names, " and "), err)
		}
		last = fd
	}
	other := os.NewFile(uintptr(last), f.Name())
	kept = append(kept, other)
	path := sync.OnceValues(func() (string, error) { return beneath.Path(other), check(other) })
	for _, n := range names {
		elsewhere[n] = path
	}
	return nil
}

// program is what is executed for a role.
func program(name string) (string, error) {
	if path := elsewhere[name]; path != nil {
		return path()
	}
	return self, nil
}

// FewDescriptors is for the environment of a role that is to hold its own
// descriptors alone: Go's runtime would hold the host's cgroup files open from its
// first moment.
const FewDescriptors = "GODEBUG=containermaxprocs=0,updatemaxprocs=0"

// Command is the program that has a role, in that role, which ends with ctx. The arguments
// only tell one process from another: all users can see them. Standard streams are
// /dev/null, and files the only other descriptors: the role finds them from 3 on.
func Command(ctx context.Context, name string, args []string, files ...*os.File) *exec.Cmd {
	path, err := program(name)
	cmd := exec.CommandContext(ctx, path)
	if err != nil {
		cmd.Err = fmt.Errorf("%s: %w", name, err)
	}
	cmd.Args = append([]string{name}, args...)
	cmd.Env = slices.Concat([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, environment, weak.Environ())
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// Stopped starts a role that stops for its tracer before its first instruction, and
// never goes on: it is killed by end, or with the calling thread, which must be locked.
func Stopped(name string, args []string, attr syscall.SysProcAttr) (p *os.Process, end func(), err error) {
	attr.Ptrace, attr.Pdeathsig = true, syscall.SIGKILL
	path, err := program(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	p, err = os.StartProcess(path, append([]string{name}, args...), &os.ProcAttr{Env: []string{}, Sys: &attr})
	if err != nil {
		return nil, nil, err
	}
	return p, func() {
		_ = p.Kill() // where it ended, there is nothing to kill
		_, _ = p.Wait()
	}, nil
}

// Runner starts roles that own what instances own. Its methods may be called from
// several goroutines.
type Runner struct {
	ids   *ids // nil for root
	state string
}

// NewRunner looks for what roles need. Without root that is ids of the user's, and
// programs that map them: where they are missing, the error is Unsupported. State is
// a directory on the disk that roles write to.
func NewRunner(state string) (*Runner, error) {
	r := &Runner{state: state}
	if os.Geteuid() == 0 {
		return r, nil
	}
	var err error
	r.ids, err = findIDs()
	return r, err
}

// Rootless reports whether roles run in a user namespace, because this process
// is not root. A role is root there once it has called BecomeRoot.
func (r *Runner) Rootless() bool { return r.ids != nil }

// Start starts a command that waits for its input. Without root, that is in a user
// namespace whose ids are those of an instance, and in which it has all capabilities.
// After an error it does not run.
func (r *Runner) Start(cmd *exec.Cmd) error {
	if r.ids == nil {
		return cmd.Start()
	}
	r.ids.attributes(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return err
	}
	err := r.ids.mapIDs(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

// Run runs a role to its end, in a mount namespace of its own. It gets in, and
// files from descriptor 3 on, and writes to out; where it fails, the error is what
// it said.
func (r *Runner) Run(ctx context.Context, name string, in io.Reader, out io.Writer, files ...*os.File) error {
	cmd := Command(ctx, name, nil, files...)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	cmd.WaitDelay = time.Second
	words, kept := &Words{}, &keptError{w: out}
	cmd.Stdout, cmd.Stderr = kept, words
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := r.Start(cmd); err != nil {
		return err
	}
	_, err = io.Copy(stdin, in)
	if errors.Is(err, syscall.EPIPE) { // it did not want it all; how it ends says why
		err = nil
	}
	err = errors.Join(err, stdin.Close())
	if werr := cmd.Wait(); werr != nil {
		if kept.err != nil { // the role only felt its pipe break
			return errors.Join(err, kept.err)
		}
		err = errors.Join(err, words.Error(ctx, werr))
		// A role has only words, and gVisor's don't say why it ended.
		if ctx.Err() == nil && disk.Full(r.state) {
			err = errors.Join(err, syscall.ENOSPC)
		}
	}
	return err
}

// Ask is Run for a role that is told one value and answers with another. What more it
// is to read follows the first line.
func (r *Runner) Ask(ctx context.Context, name string, order, answer any, more io.Reader, files ...*os.File) error {
	return r.AskNews(ctx, name, order, answer, more, nil, files...)
}

// AskNews is Ask for a role that tells news before it answers, by TellNews.
func (r *Runner) AskNews(ctx context.Context, name string, order, answer any, more io.Reader, news func(json.RawMessage), files ...*os.File) error {
	raw, err := json.Marshal(order)
	if err != nil {
		return err
	}
	var in io.Reader = bytes.NewReader(append(raw, '\n'))
	if more != nil {
		in = io.MultiReader(in, more)
	}
	out := newsReader{news: news}
	if err := r.Run(ctx, name, in, &out, files...); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(out.rest, answer); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// keptError is a writer that remembers how it failed.
type keptError struct {
	w   io.Writer
	err error
}

func (k *keptError) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if err != nil {
		k.err = err
	}
	return n, err
}

// Words keeps the last MaxWords that a role says.
type Words struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (w *Words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	if len(p) > MaxWords {
		p = p[len(p)-MaxWords:]
	}
	if over := w.buf.Len() + len(p) - MaxWords; over > 0 {
		w.buf.Next(over)
	}
	w.buf.Write(p)
	return n, nil
}

// Error prefers why ctx ended, and then what the role said, to how it exited.
func (w *Words) Error(ctx context.Context, exit error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := strings.TrimSpace(w.buf.String()); text != "" {
		return heard(text)
	}
	return exit
}
