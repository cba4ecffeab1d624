package escape

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// file names one of the host's.
type file struct{ dev, ino uint64 }

// secrets is what no process of a box may come across.
type secrets struct {
	key     []byte
	program []byte
	files   map[file]string // the control plane's, and their names
}

// controlPlane collects what lies on the host for one box and for the daemon.
func (w *world) controlPlane(dir string) (c secrets, err error) {
	if c.key, err = os.ReadFile(filepath.Join(dir, "agent.key")); err != nil {
		return c, err
	}
	guest, err := filepath.Glob(filepath.Join(w.cache(), "carboy/guest/carboy-guest-*"))
	if err != nil || len(guest) == 0 {
		return c, fmt.Errorf("no program of the agent's: %q, %w", guest, err)
	}
	if c.program, err = os.ReadFile(guest[len(guest)-1]); err != nil {
		return c, err
	}
	c.files = map[file]string{}
	for _, top := range []string{dir, w.path("run"), w.path("config"), filepath.Join(w.cache(), "carboy/guest")} {
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // one that has just ended
			}
			if id, ok := identify(p); ok {
				c.files[id] = p
			}
			return nil
		})
		if err != nil {
			return c, err
		}
	}
	if len(c.files) < 8 {
		return c, fmt.Errorf("found only %d files of the control plane", len(c.files))
	}
	return c, nil
}

// cache is the world's cache directory.
func (w *world) cache() string {
	for _, v := range slices.Backward(w.env) {
		if at, ok := strings.CutPrefix(v, "XDG_CACHE_HOME="); ok {
			return at
		}
	}
	return ""
}

func identify(p string) (file, bool) {
	var st unix.Stat_t
	err := unix.Lstat(p, &st)
	return file{st.Dev, st.Ino}, err == nil
}

// entriesSeen are names in the first two levels of mounts that hold neither
// the image nor a tree of the user's, and in the directories of the image
// where others would put what they run by.
var entriesSeen = []seen{
	may("sentry", `/etc/localtime`, "a copy of gVisor's, for its own clock"),
	may("gofer agent command", `/run/lock`, "every system has it"),
	may("agent command", `/run/carboy(/(tasks-\d|cgroup|oom|pids))?`, "the agent's, covered for commands"),
	may("agent", `/run/carboy/machine`, "the agent's, unmounted for commands"),
	may("gofer", `/run/carboy(/machine)?`, "directories that the agent mounts on"),
	may("agent", `/run/carboy/machine/(proc|sys)`, "what the agent shows commands of their limits"),
	may("command", `/sys/(devices|devices/system|fs|fs/cgroup)`, "processors and cgroups as the agent shows them"),
	may("agent command", `/run/carboy/cgroup/(commands|agent|self|(cgroup|memory|pids|cpu|io|cpuset|hugetlb|misc|rdma|irq|dmem)\..*)`, "the box's own cgroup"),
	may("agent command", `/run/carboy/cgroup/commands/(\d+|tasks|self|(cgroup|memory|pids|cpu|io|cpuset|hugetlb|misc|rdma|irq|dmem)\..*)`, "the commands' cgroups"),
	may("agent command", `/dev/(null|zero|full|random|urandom|tty|ptmx|pts|shm|fd|stdin|stdout|stderr|pts/ptmx|pts/\d+)`, "devices that everybody may have"),
	may("gofer agent command", `/(tmp|var/tmp)/(hsperfdata_.*)?`, "nothing, in a box that is new"),
}

// listed are the directories whose first two levels are compared.
var listed = []string{"/run", "/dev", "/tmp", "/var/tmp", "/sys", "/usr/etc", "/usr/local/etc"}

// trees looks through what a process has mounted.
func (s *sight) trees(p subject, mounts []mount) {
	if p.kind == sentry { // whose root is to be empty
		s.list(p, "/")
		return
	}
	for _, top := range listed {
		s.list(p, top)
	}
	for _, m := range mounts {
		switch {
		case m.fs == "proc" || m.fs == "cgroup" || m.fs == "cgroup2":
			continue // of kernels, and without files of anybody's
		case !s.deep && allows(programsSeen, p.kind, m.String()):
			continue // this machine's programs: gone through once
		}
		s.walk(p, m)
	}
}

// list compares two levels of a directory with the closed list.
func (s *sight) list(p subject, top string) {
	root := fmt.Sprintf("/proc/%d/root", p.pid)
	for _, e := range entriesOf(root + top) {
		at := filepath.Join(top, e.Name())
		if e.IsDir() || e.Type().IsRegular() { // which something may be mounted on
			for _, sub := range entriesOf(root + at) {
				s.entry(p, filepath.Join(at, sub.Name()))
			}
		}
		if p.kind == sentry && e.IsDir() && (at == "/etc" || at == "/proc") {
			continue // directories of gVisor's
		}
		s.entry(p, at)
	}
}

func entriesOf(dir string) []fs.DirEntry {
	list, _ := os.ReadDir(dir)
	return list
}

func (s *sight) entry(p subject, at string) {
	s.note("%s sees %s", p.kind, at)
	if !allows(entriesSeen, p.kind, at) {
		s.find("%s sees %s, which is in no list", p.kind, at)
	}
}

// walk looks at every file of one mount.
func (s *sight) walk(p subject, m mount) {
	root := fmt.Sprintf("/proc/%d/root", p.pid)
	programs := m.point != "/" && allows(programsSeen, p.kind, m.String()) // which nothing is read of, for their number
	top := filepath.Join(root, m.point)
	start, ok := identify(top)
	if !ok {
		s.find("%s: %s can't be looked at", p.kind, m.point)
		return
	}
	_ = filepath.WalkDir(top, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		id, ok := identify(at)
		if d.IsDir() && ok && id.dev != start.dev {
			return fs.SkipDir // another mount
		}
		s.judge(p, strings.TrimPrefix(at, root), at, id, d, s.ofUser(m), !programs)
		return nil
	})
}

func (s *sight) judge(p subject, name, at string, id file, d fs.DirEntry, users, read bool) {
	if of, ok := s.secret.files[id]; ok {
		s.find("%s: %s is %s", p.kind, name, of)
	}
	switch {
	case d.Type()&fs.ModeSocket != 0 && !users:
		s.find("%s: %s is a socket", p.kind, name)
	case strings.HasPrefix(d.Name(), "carboy-guest"):
		s.find("%s: %s has the name of the agent's program", p.kind, name)
	case read:
		if why := s.secret.in(at); why != "" {
			s.find("%s: %s has %s", p.kind, name, why)
		}
	}
}

// maxLooked bounds the files that are looked through for a key: a key or a
// configuration is small.
const maxLooked = 64 << 10

// in says what of the control plane's a file has.
func (c *secrets) in(at string) string {
	fi, err := os.Lstat(at) // and not by its entry, which something may be mounted on
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxLooked && fi.Size() != int64(len(c.program)) {
		return ""
	}
	b, err := os.ReadFile(at)
	switch {
	case err != nil:
		return ""
	case bytes.Equal(b, c.program):
		return "the agent's program"
	}
	for _, form := range []string{string(c.key), base64.StdEncoding.EncodeToString(c.key), hex.EncodeToString(c.key)} {
		if bytes.Contains(b, []byte(form)) {
			return "the agent's key"
		}
	}
	return ""
}
