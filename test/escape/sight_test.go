package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// subject is a process of a box, as the host's /proc shows it.
type subject struct {
	pid  int
	kind string // one of the below
}

const (
	sentry  = "sentry"
	gofer   = "gofer"
	agent   = "agent"
	command = "command" // and the inner init, which is in the same namespaces
)

// mount is a line of a mountinfo.
type mount struct {
	id, point, root, fs string
}

func (m mount) String() string { return m.point + " " + m.root + " " + m.fs }

// share is a tree of the user's: where it is shown, and the directory of its
// file system that it is.
type share struct{ at, root string }

// seen is one line of a closed list.
type seen struct {
	kinds []string
	text  *regexp.Regexp // of a whole mount, descriptor or path
	why   string
}

func may(kinds, text, why string) seen {
	return seen{strings.Fields(kinds), regexp.MustCompile("^(?:" + text + ")$"), why}
}

// mountsSeen are all mounts that a process of a box's may have, beside those
// of the user's trees: the mount point, its root and its file system.
var mountsSeen = []seen{
	may("sentry", `/ / tmpfs`, "an empty root of gVisor's"),
	may("gofer agent command", `/ / overlay`, "the image below, the box's own layer above"),
	may("gofer agent command", `/workspace / overlay`, "a view of a tree, or a saved one"),
	may("gofer agent command", `/workspace /(layers/)?workspace ext4`, "a workspace on the box's disk"),
	may("gofer", `/tmp /tmp overlay`, "the box's own layer, named for gVisor"),
	may("agent command", `/run/carboy / tmpfs`, "a memory file system of the agent's, and over it the commands' empty one"),
	may("agent command", `/run/carboy/tasks-\d /\S+/commands/tasks cgroup`, "the list of the commands' cgroup"),
	may("agent command", `/run/carboy/cgroup /\S* cgroup2`, "the box's own cgroup"),
	may("agent command", `/run/carboy/oom /\S+/memory\.oom_control cgroup`, "a counter of the commands' cgroup"),
	may("agent command", `/run/carboy/pids /\S+/pids\.events cgroup`, "a counter of the commands' cgroup"),
	may("agent", `/run/carboy/machine / tmpfs`, "what the agent shows commands of their limits"),
	may("agent", `/run/carboy/machine/sys/fs/cgroup(/\S+)? /\S* cgroup2?`, "the box's own cgroups"),
	may("command", `/sys /sys tmpfs`, "processors and cgroups as the agent shows them"),
	may("command", `/sys/fs/cgroup(/\S+)? /\S* cgroup2?`, "the box's own cgroups"),
	may("command", `/proc/(cpuinfo|stat|meminfo) /proc/(cpuinfo|stat|meminfo) tmpfs`, "what the agent shows of processors and memory"),
	may("agent command", `/proc / proc`, "of the box's own processes"),
	may("command", `/proc/(sys|irq|bus|fs|keys|timer_list|sysrq-trigger|acpi|scsi|kcore|kallsyms|asound|driver) /\S+ proc`, "a read-only part of the same"),
	may("agent command", `/dev / tmpfs`, "the box's own"),
	may("agent command", `/dev/(null|zero|full|random|urandom|tty) /(null|zero|full|random|urandom|tty) (devtmpfs|tmpfs)`, "a device that everybody may have"),
	may("agent command", `/dev/pts / devpts`, "the box's own terminals"),
	may("agent command", `/dev/shm / tmpfs`, "the box's own shared memory"),
}

// programsSeen are the mounts of this machine's own programs.
var programsSeen = []seen{
	may("gofer agent command", `/(usr|bin|sbin|lib|lib32|lib64|libx32|var/lib/dpkg) / overlay`, "a part of this machine's programs"),
	may("gofer agent command", `/usr(/local)?/etc / tmpfs`, "covers an administrator's configuration"),
	may("gofer agent command", `/opt /opt \S+`, "programs of this machine"),
	may("gofer agent command", `(\S+)/(\.cargo/bin|\.rustup|\.nvm/versions|\.pyenv|\.local/share/uv|go/bin|sdk) \S+/(\.cargo/bin|\.rustup|\.nvm/versions|\.pyenv|\.local/share/uv|go/bin|sdk) \S+`, "a toolchain of this machine's"),
}

// allows reports whether a list has text for a kind of process.
func allows(list []seen, kind, text string) bool {
	return slices.ContainsFunc(list, func(s seen) bool { return slices.Contains(s.kinds, kind) && s.text.MatchString(text) })
}

// sight is what the processes of one box see of the host.
type sight struct {
	w      *world
	dir    string // the box's, on the host
	shares []share
	secret secrets
	lines  []string // what was seen
	found  []string // what should not have been
	deep   bool     // looks through the machine's own programs, too
}

func (s *sight) note(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *sight) find(format string, args ...any) {
	s.found = append(s.found, fmt.Sprintf(format, args...))
}

// look goes over all processes of the box at dir.
func (w *world) look(dir string, deep bool, shares ...share) *sight {
	w.t.Helper()
	s := &sight{w: w, dir: dir, shares: shares, deep: deep}
	var err error
	if s.secret, err = w.controlPlane(dir); err != nil {
		w.t.Fatal(err)
	}
	subjects, err := w.subjects(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	mounts := map[int][]mount{}
	for _, p := range subjects {
		if mounts[p.pid], err = mountsOf(p.pid); err != nil {
			w.t.Fatal(err)
		}
	}
	gone := map[string]bool{} // through, by namespace
	for _, p := range subjects {
		if ns := p.kind + link(p.pid, "ns/mnt"); !gone[ns] {
			gone[ns] = true
			s.mounts(p, mounts[p.pid])
			s.trees(p, mounts[p.pid])
		}
		s.descriptors(p, subjects, mounts)
	}
	slices.Sort(s.lines)
	s.lines = slices.Compact(s.lines)
	return s
}

// boxDir is the directory of a box by its name.
func (w *world) boxDir(name string) string {
	w.t.Helper()
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(w.ok("inspect", "--json", name)), &list); err != nil || len(list) != 1 {
		w.t.Fatalf("inspect %s: %d answers, %v", name, len(list), err)
	}
	return filepath.Join(w.dir, "state/carboy/boxes", w.wall, list[0].ID)
}

// started lists the commands of an agent, once none is between its fork and its exec: until then it is the agent, in all that
// it has.
func started(of int) (inner []subject) {
	own := cmdline(of)
	patience.Until(10*time.Second, func() bool {
		inner = below(of, command)
		return !slices.ContainsFunc(inner, func(s subject) bool { return cmdline(s.pid) == own })
	})
	return inner
}

func cmdline(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // "" of one that has ended
	return string(raw)
}

// subjects lists the processes of a box on the host.
func (w *world) subjects(dir string) ([]subject, error) {
	var box struct {
		Processes []struct{ PID int }
	}
	raw, err := os.ReadFile(filepath.Join(dir, "box.json"))
	if err == nil {
		err = json.Unmarshal(raw, &box)
	}
	if err != nil {
		return nil, err
	}
	var list []subject
	if w.wall == facts.GVisor {
		if len(box.Processes) != 2 {
			return nil, fmt.Errorf("%d processes, not a sentry and a gofer", len(box.Processes))
		}
		list = []subject{{box.Processes[0].PID, sentry}, {box.Processes[1].PID, gofer}}
		return append(list, below(box.Processes[0].PID, sentry)...), nil // those that guest programs run in
	}
	if len(box.Processes) != 1 {
		return nil, fmt.Errorf("%d processes, not an agent", len(box.Processes))
	}
	inner := started(box.Processes[0].PID)
	if len(inner) == 0 {
		return nil, errors.New("the agent has no children")
	}
	return append([]subject{{box.Processes[0].PID, agent}}, inner...), nil
}

// below lists the children of a process, and theirs.
func below(pid int, kind string) (list []subject) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				list = append(append(list, subject{child, kind}), below(child, kind)...)
			}
		}
	}
	return list
}

// mountsOf reads a process's mount table.
func mountsOf(pid int) (list []mount, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		sep := slices.Index(f, "-")
		if sep < 6 || len(f) < sep+3 {
			return nil, fmt.Errorf("mountinfo has %q", line)
		}
		list = append(list, mount{id: f[0], point: f[4], root: f[3], fs: f[sep+1]})
	}
	return list, nil
}

// mounts compares a mount table with the closed list.
func (s *sight) mounts(p subject, list []mount) {
	for _, m := range list {
		s.note("%s mount %s", p.kind, m)
		if s.ofUser(m) && p.kind != sentry || allows(slices.Concat(mountsSeen, programsSeen), p.kind, m.String()) {
			continue
		}
		s.find("%s has a mount that is in no list: %s", p.kind, m)
	}
}

// ofUser reports whether m is a tree that the user wanted shown, or a part of
// one that is held there.
func (s *sight) ofUser(m mount) bool {
	return slices.ContainsFunc(s.shares, func(h share) bool {
		rest, ok := strings.CutPrefix(m.point, h.at)
		return ok && (rest == "" || rest[0] == '/') && m.root == h.root+rest
	})
}

// controlPlaneShown is what the processes of a new box can reach and should
// not. In a used one there may be sockets and files of its own.
func controlPlaneShown(w *world) []string {
	if os.Geteuid() != 0 {
		return nil // others' processes can't be looked into
	}
	box := w.another()
	defer w.run(nil, "rm", "-f", box)
	waiting(w.t, w, box, false)
	return w.look(w.boxDir(box), full && len(w.weaken) == 0,
		share{facts.Tools, w.path(dirTools)}, share{facts.ReadOnly, w.path(dirReadOnly)}, share{facts.Writable, w.path(dirWritable)}).found
}
