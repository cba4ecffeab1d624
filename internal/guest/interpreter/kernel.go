package interpreter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/zmtp"
)

const (
	startLimit  = 60 * time.Second // for a kernel to take messages
	killDelay   = time.Second
	retryEvery  = 20 * time.Millisecond // for sockets that are not there yet
	idleGrace   = 2 * time.Second       // after a cell's reply, for the next of its output
	idleRounds  = 15                    // of that
	againEvery  = time.Second           // between interrupts that do not help
	overGrace   = 10 * time.Second      // for a cell to end that has put out too much
	maxMessage  = 64 << 20
	replySize   = 8 << 20
	readyPeriod = 250 * time.Millisecond
)

// maxOutput is how many bytes one cell may put out. Tests have less.
var maxOutput int64 = 64 << 20

// kernel is one that takes cells, one at a time.
type kernel struct {
	*process
	spec    jupyter.Spec
	session *jupyter.Session
	shell   *zmtp.Conn
	iopub   *zmtp.Conn
	control *zmtp.Conn

	heard atomic.Int64 // messages that came
	mu    sync.Mutex
	cell  *cell // the one that runs
	// why is what a cell is told that runs when the kernel goes.
	why failure
}

// start starts a kernel and waits until it answers.
func (s *Server) start(ctx context.Context, l launch, cwd string) (*kernel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %s", startLimit))
	defer cancel()
	if l.python == nil {
		return s.startOne(ctx, l.spec, "", cwd)
	}
	lacks := "there is no python3"
	for _, python := range l.python {
		k, err := s.startOne(ctx, jupyter.Spec{Name: "python3"}, python, cwd)
		if !errors.Is(err, errMissing) {
			return k, err
		}
		lacks = fmt.Sprintf("%s: %s", python, err)
	}
	return nil, &missingError{Language: python, Lacks: lacks}
}

func (s *Server) startOne(ctx context.Context, spec jupyter.Spec, python, cwd string) (*kernel, error) {
	p, err := s.begin(spec, python, cwd)
	if err != nil {
		return nil, err
	}
	if err := p.started(ctx); err != nil {
		p.kill()
		return nil, err
	}
	k := &kernel{process: p, spec: spec, session: jupyter.NewSession(p.key), why: errorEvent(restarting, restarted)}
	if err := k.connect(ctx); err != nil {
		p.kill()
		return nil, fmt.Errorf("reach the kernel: %w", err)
	}
	s.work.Go(k.watch)
	s.work.Go(func() { k.read(k.iopub) })
	s.work.Go(func() { k.read(k.shell) })
	s.work.Go(func() { k.read(k.control) })
	if err := k.greet(ctx); err != nil {
		k.kill()
		return nil, fmt.Errorf("greet the kernel: %w", err)
	}
	return k, nil
}

// connect opens the sockets, once the kernel has made them.
func (k *kernel) connect(ctx context.Context) (err error) {
	open := func(i int, kind string, limit int64) *zmtp.Conn {
		for err == nil {
			c, derr := zmtp.Dial(ctx, k.network, k.address[i], kind, limit)
			if derr == nil {
				return c
			}
			select {
			case <-k.gone:
				err = fmt.Errorf("it ended: %s", k.errors)
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(retryEvery):
			}
		}
		return nil
	}
	k.iopub = open(iopub, zmtp.Sub, maxMessage)
	k.shell = open(shell, zmtp.Dealer, replySize)
	k.control = open(control, zmtp.Dealer, replySize)
	if err != nil {
		k.closeAll()
	}
	return err
}

func (k *kernel) closeAll() {
	for _, c := range []*zmtp.Conn{k.iopub, k.shell, k.control} {
		if c != nil {
			c.Close()
		}
	}
}

// watch tells the cell that runs when the kernel has ended.
func (k *kernel) watch() {
	<-k.gone
	k.closeAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cell != nil {
		k.cell.fail(k.why)
		k.cell.done(gone)
	}
}

// alive reports whether the kernel still runs.
func (k *kernel) alive() bool {
	select {
	case <-k.gone:
		return false
	default:
		return true
	}
}

// read hands on what comes over one socket until it is closed.
func (k *kernel) read(c *zmtp.Conn) {
	for {
		parts, err := c.Receive()
		if errors.Is(err, zmtp.ErrTooLarge) {
			k.tooLarge(jupyter.ParentOf(parts))
			continue
		}
		if err != nil {
			if k.alive() {
				k.signal(syscall.SIGKILL) // it speaks no ZMTP any more: nothing would ever end
			}
			return
		}
		k.heard.Add(1)
		m, err := k.session.Decode(parts)
		if err != nil {
			continue // not by our kernel
		}
		k.mu.Lock()
		if k.cell != nil && k.cell.id == m.Parent.ID {
			k.cell.message(m)
		}
		k.mu.Unlock()
	}
}

func (k *kernel) tooLarge(parent string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cell != nil && k.cell.id == parent {
		k.cell.exceed()
	}
}

// greet waits until both a reply and a broadcast have come: a subscription
// counts from when the kernel has seen it.
func (k *kernel) greet(ctx context.Context) error {
	for {
		err := k.try(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

func (k *kernel) try(ctx context.Context) error {
	c, err := k.send("kernel_info_request", struct{}{}, nil)
	if err != nil {
		return err
	}
	defer k.release()
	ctx, cancel := context.WithTimeout(ctx, readyPeriod)
	defer cancel()
	for _, seen := range []chan struct{}{c.replied, c.idle} {
		select {
		case <-seen:
		case <-c.gone:
			return fmt.Errorf("it ended: %s", k.errors)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// send makes a request the cell that runs. release ends that.
func (k *kernel) send(kind string, content any, out *outbox) (*cell, error) {
	parts, id, err := k.session.Encode(kind, content)
	if err != nil {
		return nil, err
	}
	c := &cell{id: id, out: out, replied: make(chan struct{}), idle: make(chan struct{}), gone: make(chan struct{}), stop: make(chan struct{})}
	k.mu.Lock()
	k.cell = c
	if !k.alive() {
		c.fail(k.why)
		c.done(gone)
	}
	k.mu.Unlock()
	if err := k.shell.Send(parts...); err != nil && k.alive() {
		k.signal(syscall.SIGKILL)
	}
	return c, nil
}

func (k *kernel) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cell = nil
}

// end kills the kernel; the cell that runs is told why.
func (k *kernel) end(why failure) {
	k.mu.Lock()
	k.why = why
	k.mu.Unlock()
	k.kill()
}

// interrupt asks the kernel to stop what it does.
func (k *kernel) interrupt() {
	if k.spec.InterruptMode != "message" {
		k.signal(syscall.SIGINT)
		return
	}
	if parts, _, err := k.session.Encode("interrupt_request", struct{}{}); err == nil {
		_ = k.control.Send(parts...)
	}
}
