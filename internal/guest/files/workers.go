package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// Defaults of WorkerOptions.
const (
	defaultPerUser = 4
	defaultIdle    = 30 * time.Second
)

// maxThreads bounds the threads of one Workers over all users.
const maxThreads = 64

// ErrClosed is returned for work given to closed Workers.
var ErrClosed = errors.New("file workers are closed")

// WorkerOptions tune Workers. The zero value works.
type WorkerOptions struct {
	MountNS *os.File      // the mount namespace to work in; nil: the current one
	Confine func() error  // what each thread does there before it has a user's rights; nil: nothing
	PerUser int           // threads, and so calls at once, per user; 0: defaultPerUser
	Idle    time.Duration // how long a thread without work lives; 0: defaultIdle
}

// Workers run functions with a user's rights: on threads of their own, which
// left the agent's mount namespace and have the user's effective ids and
// groups. Such a thread never goes back to Go's scheduler; it dies with its
// goroutine.
type Workers struct {
	opts  WorkerOptions
	enter func(WorkerOptions, account.Account) error // enterThread, but for tests

	threads chan struct{} // one token per thread at work
	done    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	pools  map[string]*pool
}

// pool holds the threads of one user. slots bounds those at work; idle ones
// wait in a stack, so that the least used die first.
type pool struct {
	slots chan struct{}
	idle  []*worker
	refs  int // calls of Do under way
}

type worker struct {
	jobs  chan *job // closed to end the worker
	timer *time.Timer
}

type job struct {
	fn       func() error
	err      error
	panicked any
	finished bool // fn returned
	done     chan struct{}
}

// NewWorkers returns Workers that have no thread yet.
func NewWorkers(o WorkerOptions) *Workers {
	if o.PerUser <= 0 {
		o.PerUser = defaultPerUser
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	return &Workers{
		opts: o, enter: enterThread,
		threads: make(chan struct{}, maxThreads), pools: make(map[string]*pool),
	}
}

// Do runs fn with a's rights and returns its error. It waits for a free
// thread as long as ctx lets it; once fn runs, Do waits for it to return,
// since a system call can't be called off. fn must not start a goroutine
// that outlives it and expects the rights, and must not call Do.
func (w *Workers) Do(ctx context.Context, a account.Account, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	key := rightsKey(a)
	p, err := w.ref(key)
	if err != nil {
		return err
	}
	defer w.unref(key, p)
	for _, slots := range []chan struct{}{p.slots, w.threads} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	wk, err := w.take(p, a)
	if err != nil {
		return err
	}
	j := &job{fn: fn, done: make(chan struct{})}
	wk.jobs <- j
	<-j.done
	if !j.finished {
		panic(j.panicked) // in the goroutine whose bug it is
	}
	w.give(p, wk)
	return j.err
}

// Close ends the idle threads at once and those at work after it, and waits
// for all of them.
func (w *Workers) Close() error {
	w.mu.Lock()
	w.closed = true
	for key, p := range w.pools {
		for _, wk := range p.idle {
			wk.retire()
		}
		p.idle = nil
		w.forgetLocked(key, p)
	}
	w.mu.Unlock()
	w.done.Wait()
	return nil
}

// rightsKey is what tells threads apart: who they act as, not the name.
func rightsKey(a account.Account) string { return fmt.Sprint(a.UID, a.GID, a.Groups) }

func (w *Workers) ref(key string) (*pool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	p := w.pools[key]
	if p == nil {
		p = &pool{slots: make(chan struct{}, w.opts.PerUser)}
		w.pools[key] = p
	}
	p.refs++
	return p, nil
}

func (w *Workers) unref(key string, p *pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.refs--
	w.forgetLocked(key, p)
}

// forgetLocked drops a pool that nobody uses, so that many users in turn
// leave nothing behind.
func (w *Workers) forgetLocked(key string, p *pool) {
	if p.refs == 0 && len(p.idle) == 0 && w.pools[key] == p {
		delete(w.pools, key)
	}
}

// take returns an idle worker of p, or a new one.
func (w *Workers) take(p *pool, a account.Account) (*worker, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		wk := p.idle[n-1]
		p.idle = p.idle[:n-1]
		wk.timer.Stop()
		w.mu.Unlock()
		return wk, nil
	}
	w.done.Add(1)
	w.mu.Unlock()

	wk := &worker{jobs: make(chan *job)}
	started := make(chan error)
	goThread(func() { w.run(wk, a, started) })
	if err := <-started; err != nil {
		return nil, fmt.Errorf("act as %s: %w", a.Name, err)
	}
	key := rightsKey(a)
	wk.timer = time.AfterFunc(w.opts.Idle, func() { w.expire(key, p, wk) })
	wk.timer.Stop()
	return wk, nil
}

// give puts a worker back, ready for more.
func (w *Workers) give(p *pool, wk *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		wk.retire()
		return
	}
	p.idle = append(p.idle, wk)
	wk.timer.Reset(w.opts.Idle)
}

// expire ends a worker that is still idle when its time has come.
func (w *Workers) expire(key string, p *pool, wk *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(p.idle, wk)
	if i < 0 {
		return // it was taken, or Close was faster
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	wk.retire()
	w.forgetLocked(key, p)
}

func (wk *worker) retire() {
	wk.timer.Stop()
	close(wk.jobs)
}

// run is the life of one thread. It reports on started whether the thread has
// the rights, then works until jobs is closed.
func (w *Workers) run(wk *worker, a account.Account, started chan<- error) {
	defer w.done.Done()
	err := w.enter(w.opts, a)
	started <- err
	if err != nil {
		return
	}
	for j := range wk.jobs {
		if !j.run() {
			return // the thread's state is anyone's guess
		}
	}
}

// run reports whether fn returned; it did not if it panicked or ended its
// goroutine.
func (j *job) run() bool {
	defer close(j.done)
	defer func() {
		if !j.finished {
			j.panicked = recover()
		}
	}()
	j.err = j.fn()
	j.finished = true
	return true
}
