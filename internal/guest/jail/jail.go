package jail

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Config says what a jail is made of.
type Config struct {
	// Hide are mount points that commands must not see.
	Hide []string
	// ReadOnlyRoot lets commands write nowhere but in and below Writable, which
	// are directories, root's neither.
	ReadOnlyRoot bool
	Writable     []string
	// Shared are mount points, of a strict jail, that others see as well and can
	// write to: commands make no sockets there. See socketRules.
	Shared []string
	// Places are files and directories that commands see elsewhere, read-only, in this order.
	Places []Place
	// Unmount are mount points of the agent's, from which Places may be taken, and which commands
	// don't have.
	Unmount []string
	// Processors are the numbers of those that commands run on, unless they choose others;
	// empty: those of the agent. SetProcessors changes them.
	Processors []int
	// PIDNamespace gives commands a pid namespace. Without one they see the
	// agent, and their orphans are its.
	PIDNamespace bool
	// Strict is for commands that run on the host's kernel: they may make no
	// system call but those of ordinary programs, and are in a Landlock domain
	// where the kernel has that.
	Strict bool
	// Tasks are files of version 1 cgroups, named tasks, into which threads
	// that fork commands write themselves: commands are born there, while the
	// agent stays where it is.
	Tasks []string
	// OOMScore is the oom_score_adj of commands, before they run their first
	// instruction; 0: the agent's own. Commands can lower it to the agent's
	// again, so it is for those that mean no harm.
	OOMScore int
	// Files bounds the descriptors of each process of a command, before its
	// first instruction and for ever; 0: the agent's own limit.
	Files uint64
	// CgroupNS says that the cgroup namespace of the process's first thread is
	// the instance's own: a strict jail's commands are in it. Otherwise they get
	// another.
	CgroupNS bool
	// Namespace is a cgroup namespace for commands of a jail that is not strict; nil: they
	// are in the agent's.
	Namespace *os.File
	// Marked gives each command a mark that its descendants can't shed, for
	// KillMarked: for kernels without cgroup v2.
	Marked bool
	Log    *slog.Logger // default: discard
}

// Place is a file or directory, and where commands see it. What is mounted in the directory
// is seen with it.
type Place struct{ Source, Target string }

// Jail is a set of namespaces and the threads that fork commands into them.
// Its methods may be called from several goroutines.
type Jail struct {
	cfg     Config
	mountNS *os.File // of the first init; see MountNS

	nursery  nursery
	landlock int // the ABI in use; 0: none
	sockets  socketDomain
	canHold  bool
	clone3   bool     // commands may call it, and are born in their groups
	cgroupNS *os.File // of the first thread; nil: see Config.CgroupNS
	stop     chan struct{}
	done     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	shedding   bool // mounts that are not wanted any more are being unmounted
	cell       *cell
	processors []int
	access     map[string][]Part   // by mount, as SetAccess has it
	covers     map[string][]string // directories that are mounts for it, or were
}

// cell is one init with its namespaces and threads. When init dies, which
// root inside can bring about, all commands die with it, and the jail makes
// another cell.
type cell struct {
	init *Process
	ns   []namespace
	user *worker // for everyone but root
	root *worker // started when first needed
	mark *worker // nil unless marked
}

// namespace is an open namespace and its clone flag.
type namespace struct {
	file *os.File
	flag int
}

// Start makes a jail. It fails where a namespace can't be made or a path not
// be hidden. The caller's main goroutine should be locked to the process's
// first thread: see package runtime's LockOSThread.
func Start(cfg Config) (*Jail, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	// A forked child that has changed its user but not yet its program shares
	// the agent's memory: nobody may trace it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("be undumpable: %w", err)
	}
	// The starter of the agent may have left descriptors open: commands get
	// none of them.
	if !weak.On(weak.DescriptorsKept) {
		if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return nil, fmt.Errorf("keep descriptors from commands: %w", err)
		}
	}
	if weak.On(weak.PIDsShared) {
		cfg.PIDNamespace = false
	}
	j := &Jail{cfg: cfg, stop: make(chan struct{}), processors: cfg.Processors}
	if err := j.prepare(); err != nil {
		return nil, err
	}
	c, err := j.newCell()
	if err != nil {
		return nil, err
	}
	j.cell = c
	for _, ns := range c.ns {
		if ns.flag == unix.CLONE_NEWNS {
			// A duplicate, for it must outlive this cell.
			if j.mountNS, err = dup(ns.file); err != nil {
				c.close()
				return nil, err
			}
		}
	}
	j.done.Go(func() { j.watch(c) })
	if !cfg.PIDNamespace {
		j.done.Go(func() { j.nursery.adopt(j.stop) })
	}
	return j, nil
}

// MountNS is the mount namespace that commands see, or one that equals it. It
// belongs to the jail.
func (j *Jail) MountNS() *os.File { return j.mountNS }

// Init is the pid of the process that commands' orphans belong to. It does
// nothing but wait for them.
func (j *Jail) Init() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cell.init.PID
}

// Close ends init, and with it every process in the pid namespace. Closing
// twice is closing once.
func (j *Jail) Close() {
	j.mu.Lock()
	select {
	case <-j.stop:
		j.mu.Unlock()
		j.done.Wait()
		return
	default:
	}
	j.closed = true
	c := j.cell
	close(j.stop)
	j.mu.Unlock()
	_ = c.init.Signal(unix.SIGKILL)
	j.done.Wait()
	_ = j.mountNS.Close()
	j.sockets.close()
	if j.cgroupNS != nil {
		_ = j.cgroupNS.Close()
	}
}

// watch replaces the cell when its init has died, until the jail is closed.
func (j *Jail) watch(c *cell) {
	for {
		status := c.init.Wait()
		j.mu.Lock()
		c.close()
		if j.closed {
			j.mu.Unlock()
			return
		}
		j.cfg.Log.Warn("inner init ended, commands with it", "status", status.String())
		next, err := j.newCell()
		if err != nil {
			j.closed = true
			j.mu.Unlock()
			j.cfg.Log.Error("start another inner init", "err", err)
			return
		}
		j.cell, c = next, next
		j.mu.Unlock()
	}
}

// newCell starts an init and a thread for ordinary users.
func (j *Jail) newCell() (*cell, error) {
	init, err := j.startInit()
	if err != nil {
		return nil, err
	}
	c := &cell{init: init}
	if err := c.open(j); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cell) open(j *Jail) error {
	cfg := j.cfg
	kinds := []struct {
		name string
		flag int
	}{{"ipc", unix.CLONE_NEWIPC}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}}
	for _, k := range kinds {
		if k.flag == unix.CLONE_NEWPID && !cfg.PIDNamespace || k.flag == unix.CLONE_NEWIPC && weak.On(weak.IPCShared) {
			continue
		}
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.init.PID), "ns", k.name))
		if err != nil {
			return fmt.Errorf("open init's %s namespace: %w", k.name, err)
		}
		c.ns = append(c.ns, namespace{file: f, flag: k.flag})
	}
	var err error
	if c.user, err = startWorker(j.confine(c, false)); err != nil {
		return fmt.Errorf("prepare a thread for users: %w", err)
	}
	if cfg.Marked {
		if c.mark, err = startWorker(func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// close ends the threads and init. Closing twice is closing once.
func (c *cell) close() {
	for _, w := range []*worker{c.user, c.root, c.mark} {
		if w != nil {
			w.stop()
		}
	}
	for _, ns := range c.ns {
		_ = ns.file.Close()
	}
	c.ns = nil
	_ = c.init.Signal(unix.SIGKILL)
	c.init.Wait()
}

// worker returns the thread for a user, and starts root's if need be.
func (j *Jail) worker(uid uint32) (*cell, *worker, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, nil, errors.New("the jail is closed")
	}
	c := j.cell
	if uid != 0 {
		return c, c.user, nil
	}
	if c.root == nil {
		w, err := startWorker(j.confine(c, true))
		if err != nil {
			return nil, nil, fmt.Errorf("prepare a thread for root: %w", err)
		}
		c.root = w
	}
	return c, c.root, nil
}

// born makes a child known as this process's own.
func (j *Jail) born(p *Process) {
	if !j.cfg.PIDNamespace {
		j.nursery.children.Store(p.PID, p)
	}
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
