package process

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"golang.org/x/sys/unix"
)

// Reason is why a command ended.
type Reason int

// The reasons.
const (
	Exited      Reason = iota + 1
	Signalled          // by something inside
	TimedOut           // by its own limit
	OutOfMemory        // by the kernel, to free memory
	Killed             // by a caller
	NotStarted         // it never ran
)

// Exit is how a command ended.
type Exit struct {
	Code     int // as a shell has it: 128 and the signal
	Reason   Reason
	Signal   syscall.Signal // 0: none
	KilledBy string         // who killed it, where Reason is Killed
	Error    string         // why it was not started, or what else is to be said; fit to be shown
	Limits   []string       // that it ran into: "memory" where that is not the reason, "pids", "disk", "inodes"
	Duration time.Duration
	dir      bool // not started for want of its directory
}

// String has the words of package os: "exit status 3", "signal: killed".
func (e Exit) String() string {
	return jail.Status{Code: e.Code, Signal: e.Signal}.String()
}

func notStarted(code int, format string, args ...any) Exit {
	return Exit{Code: code, Reason: NotStarted, Error: fmt.Sprintf(format, args...)}
}

// exitOf tells how and why the main process ended.
func (c *Command) exitOf(s jail.Status) Exit {
	memory, pids := cgroup.None, cgroup.None
	if c.group != nil {
		memory, pids = c.group.OutOfMemory(), c.group.PIDsRefused()
	}
	exit := Exit{Code: s.Code, Signal: s.Signal}
	exit.Reason, exit.KilledBy = c.reasonOf(s, memory)
	if exit.Reason != OutOfMemory && c.lostToMemory(s, memory) {
		exit.Limits = append(exit.Limits, "memory")
	}
	if c.ranOutOfPIDs(exit, pids) {
		exit.Limits = append(exit.Limits, "pids")
	}
	if c.lostToFiles(s) {
		exit.Error = "the host's open files ran short, and this sandbox held more than its part: what held the most was killed"
	}
	if s.Code != 0 {
		exit.Limits = append(exit.Limits, fullDisks(c.e.opts.DiskPaths)...)
	}
	return exit
}

// lostToFiles reports whether the command was killed for the files that it
// held or, as a shell's exit code says, a child of its own.
func (c *Command) lostToFiles(s jail.Status) bool {
	watch := c.e.opts.HostFiles
	return watch.Ended(c.proc.PID) || s.Signal == 0 && s.Code == 128+int(unix.SIGKILL) && watch.EndedSince(c.started)
}

// reasonOf tells a kill by a caller from one by the kernel: what a caller did
// is known, and what the kernel did to something that the command started may
// be all that memory shows.
func (c *Command) reasonOf(s jail.Status, memory cgroup.Blame) (reason Reason, killedBy string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.Signal == 0:
		return Exited, ""
	case c.tooLarge && s.Signal == unix.SIGKILL:
		return OutOfMemory, ""
	case c.timedOut && s.Signal == unix.SIGKILL:
		return TimedOut, ""
	case c.killed || c.killSig == s.Signal:
		return Killed, c.killedBy
	case s.Signal == unix.SIGKILL && c.claims(memory):
		return OutOfMemory, ""
	}
	return Signalled, ""
}

// lostToMemory reports whether something that the command started was killed
// to free memory. Of several commands at once it is the one whose exit code
// says, as a shell's does, that its own child was killed.
func (c *Command) lostToMemory(s jail.Status, memory cgroup.Blame) bool {
	if memory == cgroup.Perhaps && (s.Signal != 0 || s.Code != 128+int(unix.SIGKILL)) {
		return false
	}
	return c.claims(memory)
}

// claims reports whether a kill was this command's and no other's.
func (c *Command) claims(memory cgroup.Blame) bool {
	return memory == cgroup.Certain || memory == cgroup.Perhaps && c.group.ClaimKill()
}

// ranOutOfPIDs reports whether the command ran into the limit of processes.
// Of several commands at once those did that failed, or that have left so
// many processes that the others have no room.
func (c *Command) ranOutOfPIDs(e Exit, pids cgroup.Blame) bool {
	if pids == cgroup.Perhaps {
		return e.Reason == Exited && e.Code != 0 || c.group.Crowds()
	}
	return pids == cgroup.Certain
}

// A disk with less than this counts as full.
const (
	fullBytes  = 1 << 20
	fullInodes = 16
)

// fullDisks says what the file systems of paths have none of any more.
func fullDisks(paths []string) (limits []string) {
	disk, inodes := false, false
	for _, p := range paths {
		var st unix.Statfs_t
		if unix.Statfs(p, &st) != nil || st.Blocks == 0 {
			continue
		}
		disk = disk || st.Bavail*uint64(st.Bsize) < fullBytes
		inodes = inodes || (st.Files > 0 && st.Ffree < fullInodes)
	}
	if disk {
		limits = append(limits, "disk")
	}
	if inodes {
		limits = append(limits, "inodes")
	}
	return limits
}

// Of a list of directories in a message, at most this is shown.
const (
	maxShown      = 32
	maxShownBytes = 2048
)

// searched is what follows the message of a command that was looked up and
// not found: where it was looked for, and where the host would have looked
// besides.
func searched(c jail.Command, e *jail.StartError, notShown []string) string {
	// The same code is a file's whose interpreter is missing.
	if e.Code != jail.CodeNotFound || strings.Contains(c.Argv[0], "/") || !strings.HasSuffix(e.Msg, "command not found") {
		return ""
	}
	var dirs []string
	for _, v := range c.Env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = strings.Split(list, ":")
		}
	}
	for i, dir := range dirs {
		if !path.IsAbs(dir) {
			dirs[i] = path.Join(c.Dir, dir)
		}
	}
	text := "; looked in " + shown(dirs)
	if len(notShown) > 0 {
		text += "; of the host's PATH this sandbox does not show " + shown(notShown)
	}
	return text
}

// shown lists directories, each once.
func shown(dirs []string) string {
	var list []string
	size := 0
	for _, dir := range dirs {
		if slices.Contains(list, dir) {
			continue
		}
		if size += len(dir); len(list) == maxShown || size > maxShownBytes {
			return fmt.Sprintf("%s and more", strings.Join(list, ", "))
		}
		list = append(list, dir)
	}
	return strings.Join(list, ", ")
}
