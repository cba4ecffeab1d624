package escape

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

func testingVerbose() bool { return testing.Verbose() }

// held is a command of the box's that waits, as the host sees it, and the
// guest agent that started it.
type held struct{ command, agent int }

// hold starts a command that waits, calls f, and ends it.
//
// Behind a wall with a kernel of its own the host sees no such process.
func (w *world) hold(f func(held)) {
	w.t.Helper()
	mark := "hold-" + fmt.Sprintf("%x", random(8))
	cmd := exec.Command(w.bin, "exec", "-i", w.box, "--", facts.Tools+"/probe", "hold", mark)
	cmd.Env, cmd.Dir = w.env, w.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.t.Fatalf("hold: %q, %v", line, err)
	}
	if w.wall != facts.Process {
		f(held{})
		return
	}
	h := held{command: hostPID(mark, cmd.Process.Pid)}
	if h.command == 0 {
		w.t.Fatal("no process of the host's is the box's command")
	}
	if h.agent, err = parent(h.command); err != nil {
		w.t.Fatal(err)
	}
	f(h)
}

// hostPID finds the process that has mark as an argument and is not except.
func hostPID(mark string, except int) int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == except {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(b), "\x00")
		if len(args) > 2 && args[1] == "hold" && args[2] == mark {
			return pid
		}
	}
	return 0
}

func parent(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return strconv.Atoi(f[1])
}

func link(pid int, name string) string {
	to, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	return to
}

// namespacesFromOutside compares the namespaces of a command, of the agent
// and of the host: what a command can't tell apart, the host can.
func namespacesFromOutside(w *world) (found []string) {
	w.hold(func(h held) {
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
			of := host.facts.Namespaces[ns]
			agent, command := link(h.agent, "ns/"+ns), link(h.command, "ns/"+ns)
			if agent == of || agent == "" {
				found = append(found, fmt.Sprintf("the agent's %s namespace is the host's (%q)", ns, agent))
			}
			if command == of || command == "" {
				found = append(found, fmt.Sprintf("a command's %s namespace is the host's (%q)", ns, command))
			}
			if apart := ns == "mnt" || ns == "pid" || ns == "ipc"; apart && agent == command {
				found = append(found, fmt.Sprintf("commands are in the agent's %s namespace", ns))
			}
		}
		for name, pid := range map[string]int{"the agent": h.agent, "a command": h.command} {
			if uid := effective(pid); uid == "0" || uid == "1000" && os.Getuid() == 0 {
				found = append(found, fmt.Sprintf("%s is user %s of the host", name, uid))
			}
		}
	})
	return found
}

// effective is a process's effective user id on the host.
func effective(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
			return f[2]
		}
	}
	return ""
}

// descriptorsFromOutside wants every file that the agent or a command has open
// to lie on a mount of its own namespace.
func descriptorsFromOutside(w *world) (found []string) {
	w.hold(func(h held) {
		for name, pid := range map[string]int{"the agent": h.agent, "a command": h.command} {
			mounts := mountIDs(pid)
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				w.t.Fatal(err)
			}
			for _, e := range entries {
				to := link(pid, "fd/"+e.Name())
				if !strings.HasPrefix(to, "/") {
					continue // a pipe, a socket: of no mount
				}
				if id := mountOf(pid, e.Name()); !mounts[id] {
					found = append(found, fmt.Sprintf("descriptor %s of %s is %s, on a mount that is not the box's", e.Name(), name, to))
				}
			}
		}
	})
	return found
}

// inheritedDescriptors looks at the wall's own processes for the host's root
// directory, which the daemon was started with.
func inheritedDescriptors(w *world) (found []string) {
	var want unix.Stat_t
	if err := unix.Fstat(int(host.root.Fd()), &want); err != nil {
		w.t.Fatal(err)
	}
	w.hold(func(h held) {
		pids := w.own()
		if w.wall == facts.Process {
			pids = append(pids, h.agent, h.command)
		}
		if len(pids) == 0 {
			w.t.Error("no process of the box's is seen")
		}
		for _, pid := range pids {
			entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			for _, e := range entries {
				var st unix.Stat_t
				name := fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())
				if unix.Stat(name, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino {
					comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
					found = append(found, fmt.Sprintf("descriptor %s of process %d (%s) is the host's root", e.Name(), pid, bytes.TrimSpace(comm)))
				}
			}
		}
	})
	return found
}

// own lists the processes that have the world's directory on their command
// line, but for its daemon and clients.
func (w *world) own() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == w.daemon.Process.Pid {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(b), "\x00")
		if strings.Contains(string(b), w.dir) && args[0] != w.bin {
			pids = append(pids, pid)
		}
	}
	return pids
}

// environmentFromOutside looks for the daemon's variable in what the agent and
// a command were started with.
func environmentFromOutside(w *world) (found []string) {
	w.hold(func(h held) {
		for name, pid := range map[string]int{"the agent": h.agent, "a command": h.command} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil {
				w.t.Fatal(err)
			}
			if bytes.Contains(b, []byte(host.facts.Marker)) {
				found = append(found, name+" has the daemon's environment")
			}
		}
	})
	return found
}

// procFromOutside looks for a process of the host's in the /proc that the
// agent has, which the commands' own covers.
func procFromOutside(w *world) (found []string) {
	w.hold(func(h held) {
		for name, pid := range map[string]int{"the agent": h.agent, "a command": h.command} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%d/cmdline", pid, host.facts.PID))
			if bytes.Contains(b, []byte(host.facts.Marker)) {
				found = append(found, name+" has the host's /proc")
			}
		}
	})
	return found
}

func mountIDs(pid int) map[string]bool {
	ids := map[string]bool{}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	for line := range strings.Lines(string(b)) {
		id, _, _ := strings.Cut(line, " ")
		ids[id] = true
	}
	return ids
}

func mountOf(pid int, fd string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
