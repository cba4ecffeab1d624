package jail

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/seccomp"
)

// rootCapabilities are what root's commands keep: a container engine's usual
// set without the making of device nodes, raw sockets and file capabilities.
const rootCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_AUDIT_WRITE

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

// confine returns the setup of a thread that forks commands.
func (c *cell) confine(root, marked bool) func() error {
	return func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the shared working directory: %w", err)
		}
		for _, ns := range c.ns {
			if err := unix.Setns(int(ns.file.Fd()), ns.flag); err != nil {
				return fmt.Errorf("join %s: %w", ns.file.Name(), err)
			}
		}
		keep := uint64(0)
		if root {
			keep = rootCapabilities
		}
		if err := boundCapabilities(keep); err != nil {
			return err
		}
		if err := seccomp.RefuseSetID(); err != nil {
			return fmt.Errorf("refuse set-id bits: %w", err)
		}
		if err := refuseEscapes(marked); err != nil {
			return fmt.Errorf("refuse escapes: %w", err)
		}
		return nil
	}
}

// boundCapabilities leaves the calling thread what it has, and those that it
// will execute at most keep.
func boundCapabilities(keep uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	// Inheritable ones would survive root's exec whatever the bounding set
	// says; ambient ones go with them.
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("clear inheritable capabilities: %w", err)
	}
	for n := uintptr(0); n < 64; n++ {
		if keep&(1<<n) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // past the kernel's last
			break
		}
		if err != nil {
			return fmt.Errorf("bound capability %d: %w", n, err)
		}
	}
	return nil
}
