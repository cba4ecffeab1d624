package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What one box may have of what the host counts: a part in so many, or what
// programs need where that is more.
const (
	hostParts    = 16
	usualPIDs    = 1024 // the box's limit of processes
	neededFiles  = 1024 // for each process
	neededWatch  = 32
	neededTTYs   = 64
	mostAttempts = 4096
)

var countProbes = []probe{
	{name: "open-files", native: true, run: openFiles},
	{name: "watchers", native: true, run: watchers},
	{name: "terminals", native: true, run: terminals},
}

// openFiles opens what it can, after it has tried to raise its limit.
func openFiles(t *trial) {
	most, ok := t.hostCount("fs/file-max")
	if !ok {
		return
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.find("the limit of open files can't be read: %v", err)
		return
	}
	allowed := max(most/hostParts/usualPIDs, neededFiles)
	raised := unix.Rlimit{Cur: own.Max + 1, Max: own.Max + 1}
	if own.Max != unix.RLIM_INFINITY && unix.Prlimit(0, unix.RLIMIT_NOFILE, &raised, nil) == nil {
		t.find("the limit of open files was raised to %d", raised.Max)
	}
	n, err := take(min(allowed+1, 1<<17), func() (int, error) { return unix.Dup(1) })
	if n > allowed {
		t.find("%d descriptors in one process: %d of them would take more than a %dth of the host's", n, usualPIDs, hostParts)
	}
	t.note("%d descriptors, then %v", n, err)
}

func watchers(t *trial) {
	t.takeShare("fs/inotify/max_user_instances", neededWatch, func() (int, error) { return unix.InotifyInit1(unix.IN_CLOEXEC) })
}

func terminals(t *trial) {
	t.takeShare("kernel/pty/max", neededTTYs, func() (int, error) {
		return unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
}

// takeShare finds it wrong to get more than a box's part of a count.
func (t *trial) takeShare(name string, needed uint64, one func() (int, error)) {
	most, ok := t.hostCount(name)
	if !ok {
		return
	}
	allowed := min(max(most/hostParts, needed), most/2)
	n, err := take(min(allowed+1, mostAttempts), one)
	if n > allowed {
		t.find("%d of the host's %d (%s)", n, most, name)
	}
	t.note("%d, then %v", n, err)
}

// take makes up to most descriptors, and closes them all.
func take(most uint64, one func() (int, error)) (n uint64, err error) {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for n < most {
		fd, err := one()
		if err != nil {
			return n, err
		}
		fds = append(fds, fd)
		n++
	}
	return n, nil
}

// hostCount reads what the host's kernel says of itself in here too.
func (t *trial) hostCount(name string) (uint64, bool) {
	b, err := os.ReadFile("/proc/sys/" + name)
	n, perr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || perr != nil {
		t.note("%s is not to be read: %v", name, err)
		return 0, false
	}
	return n, true
}
