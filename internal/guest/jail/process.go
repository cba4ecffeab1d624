package jail

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Status is how a process ended.
type Status struct {
	Code   int            // 0 to 255; 128 and the signal where one ended it, as shells have it
	Signal syscall.Signal // 0 where it exited
}

// String has the words of package os: "exit status 3", "signal: killed".
func (s Status) String() string {
	if s.Signal != 0 {
		return "signal: " + s.Signal.String()
	}
	return "exit status " + strconv.Itoa(s.Code)
}

func statusOf(ws unix.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Code: 128 + int(ws.Signal()), Signal: ws.Signal()}
	}
	return Status{Code: ws.ExitStatus()}
}

// Process is a child of this process, reaped by Wait and by nothing else.
type Process struct {
	PID   int // here
	Inner int // in its own pid namespace: what commands see

	file *os.File // pidfd; nil on kernels without
	// marked keeps the mark's number from becoming another's, until Unmark; nil
	// without a mark.
	marked *os.File
	raw    syscall.RawConn
	wait   sync.Once

	mu     sync.Mutex
	reaped bool
	status Status
}

func newProcess(pid, pidfd int) *Process {
	p := &Process{PID: pid, Inner: pid}
	if pidfd < 0 {
		return p
	}
	// Non-blocking makes os.NewFile hand it to the runtime's poller, so that
	// waiting costs a goroutine and no thread.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		_ = unix.Close(pidfd)
		return p
	}
	p.file = os.NewFile(uintptr(pidfd), "pidfd")
	p.raw, _ = p.file.SyscallConn()
	return p
}

// readInner finds the pid in the innermost namespace. The agent's /proc knows
// it by the pidfd alone, also where /proc/PID/status does not tell it.
func (p *Process) readInner() {
	if p.raw == nil {
		return
	}
	_ = p.raw.Control(func(fd uintptr) {
		if n, ok := innerOf(int(fd)); ok {
			p.Inner = n
		}
	})
}

// innerOf is what commands call the process of a pidfd.
func innerOf(pidfd int) (int, bool) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, false
	}
	return parseNSpid(info)
}

// Inner is what commands call a process that has this pid here; pid itself where that can't be told.
func Inner(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return pid
	}
	defer unix.Close(fd)
	if n, ok := innerOf(fd); ok {
		return n
	}
	return pid
}

// parseNSpid returns the pid of an fdinfo's NSpid line that commands see: the second where there is one, for a command
// may have made further namespaces.
func parseNSpid(info []byte) (int, bool) {
	lines := bufio.NewScanner(bytes.NewReader(info))
	for lines.Scan() {
		rest, ok := bytes.CutPrefix(lines.Bytes(), []byte("NSpid:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		n, err := strconv.Atoi(string(fields[min(1, len(fields)-1)]))
		return n, err == nil && n > 0
	}
	return 0, false
}

// Wait blocks until the process has ended and reaps it. It may be called
// more than once and from several goroutines.
func (p *Process) Wait() Status {
	p.wait.Do(func() {
		if p.raw == nil || p.raw.Read(func(uintptr) bool { return p.reap(unix.WNOHANG) }) != nil {
			p.reap(0)
		}
		if p.file != nil {
			_ = p.file.Close()
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// reap reports whether the process was reaped, here or before.
func (p *Process) reap(options int) bool {
	if options&unix.WNOHANG == 0 {
		// Blocking, with the process left as a zombie: signals stay possible
		// meanwhile, and hit nothing else.
		var info unix.Siginfo
		for errors.Is(unix.Waitid(unix.P_PID, p.PID, &info, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return true
	}
	var ws unix.WaitStatus
	pid, err := unix.Wait4(p.PID, &ws, unix.WNOHANG, nil)
	switch {
	case err == nil && pid == 0, errors.Is(err, unix.EINTR):
		return false
	case err != nil: // someone else's wait took it; there is no status to tell
		p.status = Status{Code: 255}
	default:
		p.status = statusOf(ws)
	}
	p.reaped = true
	return true
}

func (p *Process) isReaped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// Signal sends sig to the process alone. It is ESRCH where it has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.kill(p.PID, sig) }

// SignalGroup sends sig to the process group that the process leads. It is
// ESRCH where the process has ended, whatever is left of the group.
func (p *Process) SignalGroup(sig syscall.Signal) error { return p.kill(-p.PID, sig) }

func (p *Process) kill(pid int, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped { // the number may be another's by now
		return fmt.Errorf("signal %d: %w", p.PID, unix.ESRCH)
	}
	if err := unix.Kill(pid, sig); err != nil {
		return fmt.Errorf("signal %d: %w", p.PID, err)
	}
	return nil
}

// nursery knows the children of an agent that is itself the init of its
// commands. With a pid namespace of their own, orphans are inner init's.
type nursery struct {
	mu       sync.RWMutex // held for reading from fork to birth
	children sync.Map     // int pid → *Process
}

// adopt reaps, until stop is closed, the orphans that become this process's
// children. Its own it leaves to Process.Wait, but reaps them, too, for else
// they would hide others behind them.
func (n *nursery) adopt(stop <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		for n.reapOne() {
		}
		select {
		case <-ended:
		case <-stop:
			return
		}
	}
}

// reapOne reports whether there was a zombie.
func (n *nursery) reapOne() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	pid, err := nextZombie()
	if err != nil || pid == 0 {
		return errors.Is(err, unix.EINTR)
	}
	// A number that was reaped by Wait may have come to another.
	if p, ok := n.children.LoadAndDelete(pid); ok && !p.(*Process).isReaped() {
		return p.(*Process).reap(unix.WNOHANG)
	}
	_, err = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}
