package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The groups inside an instance's group.
const (
	commandsGroup = "commands" // what the instance runs for its user
	agentGroup    = "agent"    // version 2: all else that the instance is
)

// forkers are the threads that stay in the commands' group to fork them,
// where a group has threads: in version 1. The limit is that much higher.
const forkers = 1

// deepest is how many levels of groups an instance may have below its own: the
// commands' group, and one for each command.
const deepest = 2

// Commands is the part of a Group that an instance's commands are in, with limits
// of their own, so that reaching one is the end of a command and not of what
// serves it. A process of the instance, its agent, puts commands there; the limits
// are in files that the agent can't write.
//
// It is plain data, so that it can be handed to another process.
type Commands struct {
	// Tasks are the version 1 files into each of which a thread of the agent
	// writes "0": from then on what it forks is born in the part. The agent's
	// other threads stay where they are.
	Tasks []string `json:"tasks,omitempty"`
	// Root is the group's directory in the version 2 tree, for the agent to
	// make groups in Root/commands; "" where no such tree is usable.
	Root string `json:"root,omitempty"`
	// OOMFile and PIDsFile count, under the keys "oom_kill" and "max", what
	// hit the part. Each is "" where its controller is not of version 1.
	OOMFile  string `json:"oom_file,omitempty"`
	PIDsFile string `json:"pids_file,omitempty"`
	// Moves and Settings are what Finish does.
	Moves    []Move    `json:"moves,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
}

// Move is of all the processes that are listed in From to the group of To;
// both are cgroup.procs files.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Setting is a file of a group and what is to be written there.
type Setting struct {
	File  string `json:"file"`
	Value string `json:"value"`
}

// Commands makes the commands' part of a group that nothing has entered yet,
// and gives to the host's user uid and group gid what the agent, which is
// that user, needs in order to use it: nothing else of the group is theirs.
// Where uid is the caller's own there is nothing to give, and what keeps the
// limits from the agent then is the boundary of its cgroup namespace.
//
// The limits are the commands' memory and number of processes; others are
// Invalid. It fails with Conflict where the part exists and with Unsupported
// where the caller may not give it away. After an error the group is fit for
// Remove.
//
// In version 2 a group with limited parts can't have processes itself, while
// the instance's cgroup namespace has to begin at the group. So some of the work is
// left to Finish.
func (g *Group) Commands(l Limits, uid, gid int) (*Commands, error) {
	if l.CPUs != 0 || l.OOMTogether {
		return nil, sandbox.Errorf(sandbox.Invalid, "commands have limits of memory and processes alone")
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	c := &Commands{}
	for _, t := range g.host.trees {
		dir, err := g.open(t)
		if err != nil {
			return nil, fmt.Errorf("open group %s: %w", g.name, err)
		}
		p := part{group: g, tree: t, dir: dir, limits: l, uid: uid, gid: gid}
		if t.version == 2 {
			err = p.makeV2(c)
		} else {
			err = p.makeV1(c)
		}
		dir.Close()
		if errors.Is(err, unix.EEXIST) {
			return nil, sandbox.Errorf(sandbox.Conflict, "cgroup %s has a part for commands", g.name)
		}
		if err != nil {
			return nil, fmt.Errorf("make the commands' part of group %s: %w", g.name, err)
		}
	}
	return c, nil
}

// part is a Commands in the making, in one tree.
type part struct {
	group    *Group
	tree     *hierarchy
	dir      *os.File
	limits   Limits
	uid, gid int
}

func (p *part) makeV1(c *Commands) error {
	memory, pids := slices.Contains(p.tree.controllers, "memory"), slices.Contains(p.tree.controllers, "pids")
	if !memory && !pids {
		return nil
	}
	if memory { // before Linux 5.11 the commands' would not be part of the instance's
		err := writeFile(p.dir, "memory.use_hierarchy", "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("count the commands' memory as the instance's: %w", err)
		}
	}
	if err := p.group.host.tree.mkdir(p.dir, commandsGroup); err != nil {
		return err
	}
	l := p.limits
	if l.PIDs > 0 {
		l.PIDs += forkers
	}
	if err := p.tree.set(p.dir, commandsGroup, l); err != nil {
		return err
	}
	// Not cgroup.procs: that would take the agent whole.
	if err := p.give(commandsGroup, "tasks"); err != nil {
		return err
	}
	dir := path.Join(p.path(), commandsGroup)
	c.Tasks = append(c.Tasks, path.Join(dir, "tasks"))
	if memory {
		c.OOMFile = path.Join(dir, "memory.oom_control")
	}
	if pids {
		c.PIDsFile = path.Join(dir, "pids.events")
	}
	return nil
}

func (p *part) makeV2(c *Commands) error {
	for _, name := range []string{agentGroup, commandsGroup} {
		if err := p.group.host.tree.mkdir(p.dir, name); err != nil {
			return err
		}
	}
	// A tree without end would be work without end for its remover.
	err := writeFile(p.dir, "cgroup.max.depth", strconv.Itoa(deepest))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bound the groups inside: %w", err)
	}
	// A process is moved, or born elsewhere, by those who may write to the
	// nearest group above both places.
	give := []struct {
		dir   string
		files []string
	}{
		{".", []string{"cgroup.procs"}},
		{agentGroup, []string{"cgroup.procs"}},
		{commandsGroup, []string{".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.freeze"}},
	}
	for _, d := range give {
		if err := p.give(d.dir, d.files...); err != nil {
			return err
		}
	}
	c.Root = p.path()
	p.plan(c)
	return nil
}

// plan writes down what Finish is to do.
func (p *part) plan(c *Commands) {
	for _, name := range []string{"memory", "pids"} {
		if slices.Contains(p.tree.controllers, name) {
			c.Settings = append(c.Settings, Setting{path.Join(c.Root, "cgroup.subtree_control"), "+" + name})
		}
	}
	if len(c.Settings) == 0 {
		return
	}
	c.Moves = append(c.Moves, Move{path.Join(c.Root, "cgroup.procs"), path.Join(c.Root, agentGroup, "cgroup.procs")})
	_ = p.tree.each(p.limits, func(s setting, v string) error { // which never fails
		c.Settings = append(c.Settings, Setting{path.Join(c.Root, commandsGroup, s.file), v})
		return nil
	})
}

func (p *part) path() string { return path.Join(p.tree.path(p.group.host.ns), p.group.name) }

// give makes files of a group inside the instance's the agent's own.
func (p *part) give(dir string, files ...string) error {
	if p.uid == os.Geteuid() {
		return nil
	}
	d, err := openDir(p.dir, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, name := range files {
		err := withFD(d, func(fd int) error { return unix.Fchownat(fd, name, p.uid, p.gid, unix.AT_SYMLINK_NOFOLLOW) })
		if errors.Is(err, fs.ErrNotExist) && (name == "cgroup.threads" || name == "cgroup.freeze") { // before Linux 4.14, 5.2
			continue
		}
		if errors.Is(err, unix.EPERM) {
			return sandbox.Errorf(sandbox.Unsupported, "only root can give %s of a cgroup to user %d", name, p.uid)
		}
		if err != nil {
			return fmt.Errorf("give %s to user %d: %w", path.Join(dir, name), p.uid, err)
		}
	}
	return nil
}

// Finish sets what Commands left: it moves the processes that have entered the
// group since to a part of their own, and then sets the commands' limits. It
// is called once, with the rights of Commands's caller, when the instance's first
// process has made its cgroup namespace and before any command starts; that
// process may call it itself, if it sees the pids of all that is in the group.
// Without version 2 controllers it has nothing to do.
func (c *Commands) Finish() error {
	for _, m := range c.Moves {
		if err := m.run(); err != nil {
			return fmt.Errorf("make room for the commands' limits: %w", err)
		}
	}
	for _, s := range c.Settings {
		err := writePath(s.File, s.Value)
		if errors.Is(err, fs.ErrNotExist) && isOptional(path.Base(s.File)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("limit commands: set %s to %s: %w", path.Base(s.File), s.Value, err)
		}
	}
	return nil
}

// run moves until nobody is left, for those listed may fork meanwhile.
func (m Move) run() error {
	for range maxMoves {
		b, err := os.ReadFile(m.From)
		if err != nil {
			return err
		}
		pids := strings.Fields(string(b))
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if pid == "0" {
				return fmt.Errorf("%s has processes of another pid namespace", m.From)
			}
			if err := writePath(m.To, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return fmt.Errorf("processes keep coming into %s", m.From)
}

// maxMoves is how often Finish looks: an instance at its start has few processes.
const maxMoves = 1000

// isOptional reports whether some kernels lack a file of version 2.
func isOptional(file string) bool {
	for i := range promises {
		for _, s := range promises[i].v2 {
			if s.file == file {
				return s.optional
			}
		}
	}
	return false
}
