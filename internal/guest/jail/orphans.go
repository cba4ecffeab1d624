package jail

import (
	"errors"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

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
