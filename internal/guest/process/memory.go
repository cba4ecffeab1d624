package process

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// memoryEvery is how often a command with a limit of its own is looked at.
const memoryEvery = 200 * time.Millisecond

// watchMemory ends a command that holds more memory than it may. It looks,
// where the kernel would refuse: kernels that guests have do not all bound a
// group of processes, and what is passed by in between is bounded by the
// sandbox.
func (c *Command) watchMemory() {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.done:
			return
		case <-c.e.ctx.Done():
			return
		}
		if c.memory() <= c.spec.Memory {
			continue
		}
		c.mu.Lock()
		c.tooLarge = true
		c.mu.Unlock()
		c.killLogged()
	}
}

// memory returns how many bytes the command's processes hold that are no
// other's.
func (c *Command) memory() (total int64) {
	c.markMu.RLock()
	pids, err := jail.Bearers(c.mark)
	c.markMu.RUnlock()
	if c.group != nil {
		pids, err = c.group.Members()
	}
	if err != nil {
		c.e.log.Warn("list a command's processes", "id", c.id, "err", err)
	}
	for _, pid := range pids {
		total += resident(pid)
	}
	return total
}

// resident returns what a process holds in memory without what it shares with
// files or others; 0 for one that is gone.
func resident(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0
	}
	all, err1 := strconv.ParseInt(f[1], 10, 64)
	shared, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return max(0, all-shared) * int64(os.Getpagesize())
}
