package process

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Tag marks managed processes among the commands of a sandbox.
const Tag = "managed-process"

const (
	killTimeout = 5 * time.Second
	// drainTimeout is for how long who reads the output of what was stopped may
	// leave it alone.
	drainTimeout = time.Second
	by           = "session" // who signals
)

// Start starts a process. One that can't be started, for there is no such
// program, is a Process that has ended: Info says why. An error means that
// there is none.
func Start(ctx context.Context, o Options) (*Process, error) {
	if err := validate(o); err != nil {
		return nil, err
	}
	env := o.Spec.Env
	p := newProcess(o, newID())
	p.started = time.Now().UTC()
	if err := p.open(); err != nil {
		return nil, err
	}
	if err := p.book.write(p.last); err != nil { // from here on that takes no more room
		_ = p.Discard()
		return nil, sandbox.DiskError(err, "the disk of "+p.o.Dir)
	}
	p.resume()
	exit, err := p.launch(ctx, env)
	if err != nil {
		_ = p.Discard()
		return nil, err
	}
	if exit != nil {
		p.errs.add([]byte(exit.GetError()))
		code := int(exit.GetCode())
		p.out.over()
		p.finish(&code)
		return p, nil
	}
	p.tasks.Go(p.watch)
	return p, nil
}

func validate(o Options) error {
	switch {
	case strings.TrimSpace(o.Spec.Command) == "":
		return sandbox.Errorf(sandbox.Invalid, "command must not be empty")
	case o.Spec.Cwd != "" && !strings.HasPrefix(o.Spec.Cwd, "/"):
		return sandbox.Errorf(sandbox.Invalid, "cwd must be an absolute path, not %.200q", o.Spec.Cwd)
	case o.Spec.MemoryMB < 0:
		return sandbox.Errorf(sandbox.Invalid, "memory_mb must not be %d", o.Spec.MemoryMB)
	}
	return nil
}

// launch has the guest start the process, in a directory that is made first.
// There is no time limit, and no end for want of a reader.
func (p *Process) launch(ctx context.Context, env map[string]string) (*guestv1.Exit, error) {
	s := p.o.Spec
	err := p.retry(ctx, func(ctx context.Context) error {
		// Where there is no mkdir, the start says that the directory is not there.
		_, err := p.guest.Run(ctx, &guestv1.Command{Argv: []string{"mkdir", "-p", "--", s.Cwd}, User: p.o.User, Cwd: "/"}, nil)
		return err
	})
	if err != nil {
		return nil, refused(err)
	}
	var exit *guestv1.Exit
	err = p.retry(ctx, func(ctx context.Context) (err error) {
		exit, err = p.guest.Launch(ctx, p.command, &guestv1.Command{
			Argv: append([]string{s.Command}, s.Args...), Env: env, Cwd: s.Cwd, User: p.o.User,
			Stdin: true, OrphanGraceMs: math.MaxUint64, Tag: Tag, MemoryBytes: uint64(s.MemoryMB) << 20,
		})
		return err
	})
	// An agent that can't be read is of no use; one that can keeps all from now.
	for _, stderr := range []bool{false, true} {
		if err == nil && exit == nil {
			_, err = p.read(ctx, agent.Read{Stderr: stderr, Max: 1})
		}
	}
	if err != nil {
		p.unlaunch(ctx)
		return nil, refused(err)
	}
	return exit, nil
}

// unlaunch ends what a start that failed here may have begun there, or may be
// about to begin.
func (p *Process) unlaunch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	for range 3 {
		err := p.guest.Signal(ctx, p.command, int(unix.SIGKILL), true, by)
		if !errors.Is(err, agent.ErrUnknown) || !pause(ctx, idle) {
			return
		}
	}
}

// refused says in our words why there is no process.
func refused(err error) error {
	if r, ok := errors.AsType[*agent.Refusal](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "the process can't be started: %s", r.Text)
	}
	if errors.Is(err, agent.ErrOld) {
		return sandbox.Errorf(sandbox.Unsupported, "managed processes: %w", agent.ErrOld).
			WithHint("delete the session; its next call makes a new one")
	}
	return &sandbox.Error{Kind: sandbox.Unavailable, Msg: "the sandbox did not start the process", Hint: "try again", Err: err}
}

// Stop ends the process and all that it started: it closes its input, asks it
// to end, and kills what is left after a grace. Attachments get what it still
// wrote, and end. A process that has ended is rid of what it left behind.
func (p *Process) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Grace+3*killTimeout)
	defer cancel()
	if p.Running() {
		p.endInput(ctx)
		err := p.signal(ctx, unix.SIGTERM)
		if err != nil && !over(err) {
			return p.unstopped(err)
		}
		p.await(ctx, p.o.Grace)
	}
	if err := p.signal(ctx, unix.SIGKILL); err != nil && !over(err) {
		return p.unstopped(err)
	}
	if !p.await(ctx, killTimeout) {
		return p.unstopped(context.DeadlineExceeded)
	}
	p.drain(ctx)
	return nil
}

// drain lets whoever reads read all that was written, for as long as they do:
// who waits for the guest is not who leaves it alone.
func (p *Process) drain(ctx context.Context) {
	t := time.NewTicker(drainTimeout)
	defer t.Stop()
	for at := p.Record().Stdout; p.line.held(); {
		select {
		case <-p.out.finished:
			return
		case <-ctx.Done():
			return
		case <-t.C:
		}
		was := at
		at = p.Record().Stdout
		if at == was && len(p.out.turn) == 0 {
			return
		}
	}
}

func (p *Process) unstopped(err error) error {
	return &sandbox.Error{
		Kind: sandbox.Unavailable, Msg: "the managed process " + p.o.Spec.ProcessID + " could not be stopped",
		Hint: "delete the session", Err: err,
	}
}

// over reports whether there is nothing left to signal.
func over(err error) bool {
	return errors.Is(err, agent.ErrEnded) || errors.Is(err, agent.ErrUnknown) || errors.Is(err, ErrGone)
}

func (p *Process) signal(ctx context.Context, sig unix.Signal) error {
	return p.retry(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*killTimeout)
		defer cancel()
		return p.guest.Signal(ctx, p.command, int(sig), true, by)
	})
}

// await waits for the end.
func (p *Process) await(ctx context.Context, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
