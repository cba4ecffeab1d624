package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var processProbes = []probe{
	{name: "own-proc", run: ownProc},
	{name: "host-processes", run: hostProcesses},
	{name: "agent-processes", run: agentProcesses},
	{name: "host-paths", run: hostPaths},
	{name: "signals", run: signals},
	{name: "process-files", run: processFiles},
	{name: "trace", run: trace},
	{name: "newborn-memory", run: newbornMemory},
}

// process is what /proc shows of one.
type process struct {
	proc    string
	pid     int
	uid     int // of its directory
	name    string
	cmdline []string
}

func (p process) file(name string) string {
	return path.Join(p.proc, strconv.Itoa(p.pid), name)
}

// processes lists what /proc shows.
func processes() []process { return processesOf("/proc") }

// processesOf lists what a /proc mounted anywhere shows.
func processesOf(proc string) (list []process) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p := process{proc: proc, pid: pid}
		var st unix.Stat_t
		if unix.Stat(p.file(""), &st) != nil {
			continue
		}
		p.uid = int(st.Uid)
		name, _ := os.ReadFile(p.file("comm"))
		p.name = strings.TrimSpace(string(name))
		raw, _ := os.ReadFile(p.file("cmdline"))
		p.cmdline = strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
		list = append(list, p)
	}
	return list
}

// foreign lists the processes that are not this user's own, pid 1 included:
// it is the init of the commands' namespace, and no command.
func foreign() (list []process) {
	for _, p := range processes() {
		if p.pid == 1 || p.uid != os.Getuid() || isAgent(p) {
			list = append(list, p)
		}
	}
	return list
}

// isAgent tells the guest agent, and what it has forked and is no other
// program yet, from the commands' init, which has a name of its own.
func isAgent(p process) bool {
	first := path.Base(p.cmdline[0])
	if p.name == "carboy-init" || first == "carboy-init" {
		return false
	}
	return p.name == "carboy-guest" || strings.HasPrefix(first, "carboy-")
}

func ownProc(t *trial) {
	to, err := os.Readlink("/proc/self")
	if err != nil || to != strconv.Itoa(os.Getpid()) {
		t.find("/proc is of another pid namespace: self is %q, %v, and the pid %d", to, err, os.Getpid())
	}
	t.note("/proc/self is %s", to)
}

func hostProcesses(t *trial) {
	all := processes()
	for _, m := range mounts() {
		if m.fstype == "proc" && m.root == "/" && m.target != "/proc" {
			all = append(all, processesOf(m.target)...)
		}
	}
	for _, p := range all {
		if strings.Contains(strings.Join(p.cmdline, " "), t.Marker) {
			t.find("process %d of the host: %q", p.pid, p.cmdline)
		}
	}
	t.note("%d processes are seen", len(all))
}

func agentProcesses(t *trial) {
	for _, p := range processes() {
		switch {
		case isAgent(p):
			t.find("the guest agent is process %d", p.pid)
		case p.pid != 1 && os.Getuid() != 0 && p.uid != os.Getuid():
			t.find("process %d is user %d's: %.20q", p.pid, p.uid, path.Base(p.cmdline[0]))
		}
	}
	t.note("no process but the commands' own and their init")
}

// hostPaths looks for where the daemon keeps its boxes: such a path names the
// host's user. What a mount table says of its sources is the kernel's doing,
// and no more than noted.
func hostPaths(t *trial) {
	for _, p := range processes() {
		if strings.Contains(strings.Join(p.cmdline, " "), t.Home) {
			t.find("the command line of process %d has a path of the host's", p.pid)
		}
	}
	if b, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(b), t.Home) {
		t.note("the mount table has paths of the host's")
	}
	t.note("no command line has one")
}

// signals sends none: signal 0 says who could be sent one.
func signals(t *trial) {
	seen := map[int]bool{}
	for _, p := range processes() {
		seen[p.pid] = true
	}
	unseen := 0
	for pid := 1; pid <= 1<<15; pid++ {
		err := unix.Kill(pid, 0)
		there := err == nil || errors.Is(err, unix.EPERM)
		switch {
		case there && pid == t.PID && !seen[pid]:
			t.find("kill knows process %d of the host", pid)
		case there && !seen[pid] && !thread(pid):
			unseen++
		case err == nil && pid == 1 && os.Getuid() != 0:
			t.find("process 1 can be signalled")
		}
	}
	// A few may have been born or have died in between.
	if unseen > 3 {
		t.find("kill knows %d processes that /proc does not show", unseen)
	}
	t.note("kill knows the commands' processes alone")
}

// thread reports whether pid is a thread, which kill finds and a listing of
// /proc leaves out.
func thread(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// processFiles looks at others' files in /proc that lead somewhere.
func processFiles(t *trial) {
	for _, p := range foreign() {
		for _, name := range []string{"root/" + t.SecretFile, "root/run/carboy/agent.sock", "cwd/run/carboy/agent.sock"} {
			if _, err := os.Stat(p.file(name)); err == nil {
				t.find("%s is there", p.file(name))
			}
		}
		for _, name := range []string{"mem", "environ", "auxv", "syscall", "stack"} {
			if n := readSome(p.file(name)); n > 0 {
				t.find("%s can be read", p.file(name))
			}
		}
		entries, _ := os.ReadDir(p.file("fd"))
		for _, e := range entries {
			to, err := os.Readlink(p.file("fd/" + e.Name()))
			if err == nil && to != "/dev/null" && !strings.HasPrefix(to, "anon_inode:") {
				t.find("descriptor %s of process %d leads to %s", e.Name(), p.pid, to)
			}
		}
		if f, err := os.OpenFile(p.file("mem"), os.O_RDWR, 0); err == nil {
			f.Close()
			t.find("%s can be written", p.file("mem"))
		}
	}
	t.note("others' files in /proc are closed")
}

// readSome returns how many bytes a file gives at once.
func readSome(name string) int {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	n, _ := unix.Read(fd, make([]byte, 512))
	return max(n, 0)
}

// trace tries what reads or stops another process.
func trace(t *trial) {
	for _, p := range foreign() {
		if err := attach(p.pid); err == nil {
			t.find("process %d can be traced", p.pid)
		}
		// A bad address comes after the question of rights.
		if _, err := vmRead(p.pid, 0x400000, make([]byte, 8)); err == nil || errors.Is(err, unix.EFAULT) {
			t.find("process_vm_readv reads process %d", p.pid)
		}
		fd, err := unix.PidfdOpen(p.pid, 0)
		if err != nil {
			continue
		}
		if got, err := unix.PidfdGetfd(fd, 0, 0); err == nil {
			t.find("pidfd_getfd takes descriptor 0 of process %d", p.pid)
			unix.Close(got)
		}
		unix.Close(fd)
	}
	t.note("no one else's process can be traced")
}

// newbornMemory looks for a command that the agent has forked and that is not
// yet another program: it has the agent's memory. The suite starts commands
// meanwhile; see newborns.
func newbornMemory(t *trial) {
	const enough, least, most = 50, time.Second, 5 * time.Second
	seen := 0
	for begun := time.Now(); time.Since(begun) < least || seen < enough && time.Since(begun) < most; {
		for _, p := range processes() {
			if p.pid == 1 || !isAgent(p) {
				continue
			}
			seen++
			took := ""
			if readSome(p.file("environ")) > 0 {
				took = "memory can be read"
			} else if attach(p.pid) == nil {
				took = "it can be traced"
			}
			// Only what was the agent's still afterwards was so before.
			if name, _ := os.ReadFile(p.file("comm")); took != "" && strings.TrimSpace(string(name)) == p.name {
				t.find("process %d is still the agent, and %s", p.pid, took)
				return
			}
		}
	}
	t.note("looked at %d that were the agent's, and could read none", seen)
}
