package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxTail is how much of a child's standard error is shown, in bytes.
const maxTail = 4 << 10

// tokenVariable is in the environment of all that belongs to a pod.
const tokenVariable = "CARBOY_POD_TOKEN"

// Options make a Backend.
type Options struct {
	// Getenv is the environment in which the program is looked up; default: this process's.
	Getenv func(string) string
	// Env is what pods are started with, besides what they are told of themselves; default: this
	// process's.
	Env []string
}

// Backend starts pods as processes of this machine. It is safe for concurrent use.
type Backend struct {
	o        Options
	children sync.WaitGroup
}

var _ pod.Backend = (*Backend)(nil)

// New makes a Backend.
func New(o Options) *Backend {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	return &Backend{o: o}
}

// Wait returns when no child of this process is left that was started for a pod.
func (b *Backend) Wait() { b.children.Wait() }

func dirOf(p record.Pod) *Dir { return DirOf(parent(p.Dir), p.Name, p.Token) }

// Start implements pod.Backend: the program is called with --adopt, --callback and
// --spawn-config-json, and the same stands in its environment.
func (b *Backend) Start(_ context.Context, p record.Pod, l pod.Launch) (s pod.Started, err error) {
	program, err := Command(b.o.Getenv)
	if err != nil {
		return s, err
	}
	config, err := json.Marshal(l.Config)
	if err != nil {
		return s, err
	}
	dir := dirOf(p)
	if err := dir.Make(); err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove())
		}
	}()
	log, err := os.OpenFile(dir.LogPath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return s, err
	}
	defer log.Close()
	cmd := exec.Command(program, "--adopt", "--callback", l.Config.Callback, "--spawn-config-json", string(config))
	cmd.Dir, cmd.Stderr = l.Cwd, log
	cmd.Env = append([]string{tokenVariable + "=" + p.Token}, b.o.Env...)
	cmd.Env = append(cmd.Env, RuntimeVariable+"="+parent(p.Dir), olderRuntime+"="+parent(p.Dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "the program of pods, %s, can't be started: %s", program, unwrap(err)).
			WithHint("set %s to another", CommandVariable)
		e.Err = err
		return s, e
	}
	id, err := procid.Of(cmd.Process.Pid)    // it is not waited for yet: the number is its own
	b.children.Go(func() { _ = cmd.Wait() }) // how it ended says nothing of the pod
	if err != nil {
		return s, errors.Join(err, end(context.Background(), p))
	}
	return pod.Started{Process: id}, nil
}

func unwrap(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// End implements pod.Backend.
func (b *Backend) End(ctx context.Context, p record.Pod) error {
	if err := end(ctx, p); err != nil {
		return err
	}
	return dirOf(p).Remove()
}

// Dial implements pod.Backend.
func (b *Backend) Dial(ctx context.Context, p record.Pod) (net.Conn, error) {
	return home.Dial(ctx, p.Socket)
}

// Stderr returns the last that a pod wrote to its standard error, and where it is.
func (b *Backend) Stderr(p record.Pod) (name string, tail []byte) {
	name = dirOf(p).LogPath()
	f, err := os.Open(name)
	if err != nil {
		return name, nil
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size == 0 {
		return name, nil
	} else if _, err := f.Seek(max(0, size-maxTail), io.SeekStart); err != nil {
		return name, nil
	}
	tail, _ = io.ReadAll(io.LimitReader(f, maxTail)) // what can be read of it
	return name, tail
}
