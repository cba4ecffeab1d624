package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// suspendKey is what a terminal takes for a suspension: Ctrl-Z.
const suspendKey = 0x1a

// looks are when it is looked for what Ctrl-Z has stopped, after that was typed: at once, and
// then for a program that stops itself when it has put its screen away.
var looks = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// unsuspend has a terminal's leader go on, and what runs in its process group, after Ctrl-Z
// was typed. They lead the terminal's session: nobody is there who could have them go on, as a
// shell does for its jobs. Linux does not stop such a group in the first place, and gVisor does.
func (c *Command) unsuspend(typed []byte) {
	if !c.input.terminal || c.proc == nil || bytes.IndexByte(typed, suspendKey) < 0 {
		return
	}
	c.mu.Lock()
	c.suspends++
	first := c.suspends == 1
	c.mu.Unlock()
	if first {
		c.e.tasks.Go(c.look)
	}
}

// look looks for what was stopped, and once more where Ctrl-Z is typed meanwhile.
func (c *Command) look() {
	for {
		c.mu.Lock()
		typed := c.suspends
		c.mu.Unlock()
		for _, wait := range looks {
			select {
			case <-time.After(wait):
			case <-c.done:
				return
			}
			if stoppedIn(c.proc.PID) {
				_ = c.proc.SignalGroup(unix.SIGCONT) // it has ended meanwhile, or goes on
			}
		}
		c.mu.Lock()
		if c.suspends == typed {
			c.suspends = 0
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// stoppedIn reports whether a process of a group is stopped.
func stoppedIn(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
		fields := bytes.Fields(after) // state, parent, group
		if len(fields) > 2 && string(fields[0]) == "T" && string(fields[2]) == strconv.Itoa(group) {
			return true
		}
	}
	return false
}
