package jail

import (
	"errors"
	"runtime"
)

// ErrRestarting says that the inner init has ended, and all commands with it,
// and that another is being started. It is worth another try.
var ErrRestarting = errors.New("the sandbox's inner init has ended and is being started again")

// worker is an operating system thread with a state of its own. It is never
// given back to the runtime: it ends with the worker.
type worker struct {
	calls chan func()
	quit  chan struct{}
	ended chan struct{}
}

// startWorker starts a thread on which setup has run.
func startWorker(setup func() error) (*worker, error) {
	w := &worker{calls: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(w.ended)
		runtime.LockOSThread()
		err := setup()
		started <- err
		for err == nil {
			select {
			case f := <-w.calls:
				f()
			case <-w.quit:
				return
			}
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return w, nil
}

// do runs f on the thread and waits for it. It fails only where the worker
// was stopped before f could run.
func (w *worker) do(f func()) error {
	done := make(chan struct{})
	select {
	case w.calls <- func() { defer close(done); f() }:
		<-done
		return nil
	case <-w.ended:
		return ErrRestarting
	}
}

// stop ends the thread. Calls that had begun are finished.
func (w *worker) stop() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	<-w.ended
}

// Act runs f as a command of u's: on a thread with a command's namespaces,
// capabilities and filter of system calls. It is for finding out what commands
// may do. Other commands are not started meanwhile, so f must not wait for
// anything. Files that f opens are the agent's. Root is an error.
func (j *Jail) Act(u User, f func()) error {
	if u.UID == 0 {
		return errors.New("act as a command: not as root")
	}
	_, w, err := j.worker(u.UID)
	if err != nil {
		return err
	}
	var failed error
	if err := w.do(func() { failed = as(u, f) }); err != nil {
		return err
	}
	return failed
}
