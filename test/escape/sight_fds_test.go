package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// descriptorsSeen are open files that are on no mount of the box's, by what
// the host's /proc calls them.
var descriptorsSeen = []seen{
	may("sentry gofer agent command", `pipe:\[\d+\]`, "between threads, and a command's streams"),
	may("sentry gofer agent", `anon_inode:\[(eventfd|eventpoll|timerfd|signalfd)\]`, "waiting"),
	may("gofer", `anon_inode:\[io_uring\]`, "gVisor's gofer waits with it"),
	may("sentry", `anon_inode:(seccomp|seccomp notify|\[seccomp notify\]|\[pidfd\])`, "holds guest programs"),
	may("agent", `anon_inode:(\[pidfd\]|inotify)`, "waits for commands, and for files"),
	may("agent", `anon_inode:\[landlock-ruleset\]`, "its threads that act for commands enter the same rules for sockets: see package jail"),
	may("sentry gofer agent command", `unnamed socket`, "pairs: to each other, and of the host's calls"),
	may("sentry", `socket agent\.sock`, "where the host reaches the agent, handed on"),
	may("sentry", `socket runsc-sb_[a-z0-9]+\.sock`, "where gVisor's own command line reaches its kernel: that is the daemon's"),
	may("agent", `socket agent\.sock`, "where the host reaches it"),
	may("sentry", `/memfd:(systrap-memory|runsc-memory|memory-usage|agent|entry|flipcall_packet_windows)( \(deleted\))?`, "memory"),
	may("gofer", `/memfd:flipcall_packet_windows( \(deleted\))?`, "memory that it shares with the sentry"),
	may("sentry gofer agent command", `/null`, "no stream"),
	may("sentry", `program`, "the agent's program, handed on, read-only"),
	may("gofer", `description`, "what gVisor was told of the box, read-only: no key, no file of anybody's"),
	may("gofer sentry agent", `cgroup file`, "Go's runtime reads how many processors there are"),
	may("gofer", `own descriptors`, "of a detached /proc, to open its own files anew"),
	may("agent", `own namespace`, "the box's own, or its commands'"),
	may("sentry", `tap`, "the link to the gate"),
}

// descriptors compares the open files of a process with the closed list.
func (s *sight) descriptors(p subject, all []subject, mounts map[int][]mount) {
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.find("%s: %v", p.kind, err)
		return
	}
	for _, e := range entries {
		what, on := s.what(p, e.Name(), all, mounts)
		if what == "" {
			continue // closed since
		}
		if on { // a mount of the box's, which the other lists are about
			s.note("%s holds files of the box's tree", p.kind)
			continue
		}
		s.note("%s holds %s", p.kind, inode.ReplaceAllString(what, "[N]"))
		if !allows(descriptorsSeen, p.kind, what) {
			s.find("%s holds descriptor %s, which is in no list: %s (%s)", p.kind, e.Name(), what, link(p.pid, "fd/"+e.Name()))
		}
	}
}

// what names an open file, and says whether it is one on the box's mounts.
func (s *sight) what(p subject, fd string, all []subject, mounts map[int][]mount) (name string, on bool) {
	at := fmt.Sprintf("/proc/%d/fd/%s", p.pid, fd)
	to := link(p.pid, "fd/"+fd)
	var st unix.Stat_t
	if to == "" || unix.Stat(at, &st) != nil {
		return "", false
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	of, secret := s.secret.files[file{st.Dev, st.Ino}]
	switch {
	case strings.HasPrefix(to, "socket:["):
		return socketName(to), false
	case strings.Contains(to, ":["): // namespaces are nobody else's
		return s.namespace(to), false
	case !strings.HasPrefix(to, "/"), strings.HasPrefix(to, "/memfd:"):
		return to, false
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(st.Rdev) == 1 && unix.Minor(st.Rdev) == 3:
		return "/null", false
	case strings.HasSuffix(to, "/net/tun"):
		return "tap", false
	case secret && s.readOnly(p, fd) && of == filepath.Join(s.dir, "bundle/config.json"):
		return "description", false
	case secret && s.readOnly(p, fd) && strings.Contains(of, "/carboy/guest/carboy-guest-"):
		return "program", false
	case secret:
		return "the control plane's " + of, false
	case p.kind == sentry && dir:
		return "a directory: " + to, false
	case s.ofBox(p, fd, all, mounts):
		return to, true
	case strings.HasSuffix(to, "/cpu.cfs_quota_us"), strings.HasSuffix(to, "/cpu.cfs_period_us"), strings.HasSuffix(to, "/cpu.max"):
		return "cgroup file", false
	case dir && fileSystem(at) == unix.PROC_SUPER_MAGIC && hasEntry(at, fd):
		return "own descriptors", false
	}
	return to, false
}

// ofBox reports whether an open file is on a mount of one of the box's
// processes.
func (s *sight) ofBox(p subject, fd string, all []subject, mounts map[int][]mount) bool {
	id := mountOf(p.pid, fd)
	return slices.ContainsFunc(all, func(o subject) bool {
		return slices.ContainsFunc(mounts[o.pid], func(m mount) bool { return m.id == id })
	})
}

// namespace tells the box's own from the host's.
func (s *sight) namespace(to string) string {
	kind, _, _ := strings.Cut(to, ":[")
	if mine := link(os.Getpid(), "ns/"+kind); mine == "" {
		return to // of another kind: an anonymous inode, a pipe
	} else if mine == to {
		return "a namespace of the host's: " + to
	}
	return "own namespace"
}

func (s *sight) readOnly(p subject, fd string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", p.pid, fd))
	for line := range strings.Lines(string(b)) {
		var flags int
		if n, _ := fmt.Sscanf(line, "flags: %o", &flags); n == 1 {
			return flags&unix.O_ACCMODE == unix.O_RDONLY
		}
	}
	return false
}

// socketName is the name of a unix socket of the host's, if it has one.
func socketName(to string) string {
	number := strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")
	b, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && f[6] == number {
			return "socket " + filepath.Base(f[7])
		}
	}
	return "unnamed socket"
}

func fileSystem(at string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(at, &st) != nil {
		return 0
	}
	return st.Type
}

func hasEntry(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}
