package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Config says what a jail is made of.
type Config struct {
	// Hide are mount points that commands must not see.
	Hide []string
	// PIDNamespace gives commands a pid namespace. Without one they see the
	// agent, and their orphans are its.
	PIDNamespace bool
	// Marked gives each command a mark that its descendants can't shed, for
	// KillMarked: for kernels without cgroup v2.
	Marked bool
	Log    *slog.Logger // default: discard
}

// Jail is a set of namespaces and the threads that fork commands into them.
// Its methods may be called from several goroutines.
type Jail struct {
	cfg     Config
	mountNS *os.File // of the first init; see MountNS

	nursery nursery
	stop    chan struct{}
	done    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	cell   *cell
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
	// Whoever started the agent may have left descriptors open: commands get
	// none of them.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep descriptors from commands: %w", err)
	}
	j := &Jail{cfg: cfg, stop: make(chan struct{})}
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

// Close ends init, and with it every process in the pid namespace.
func (j *Jail) Close() {
	j.mu.Lock()
	j.closed = true
	c := j.cell
	j.mu.Unlock()
	close(j.stop)
	_ = c.init.Signal(unix.SIGKILL)
	j.done.Wait()
	_ = j.mountNS.Close()
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
	if err := c.open(j.cfg); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cell) open(cfg Config) error {
	kinds := []struct {
		name string
		flag int
	}{{"ipc", unix.CLONE_NEWIPC}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}}
	for _, k := range kinds {
		if k.flag == unix.CLONE_NEWPID && !cfg.PIDNamespace {
			continue
		}
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.init.PID), "ns", k.name))
		if err != nil {
			return fmt.Errorf("open init's %s namespace: %w", k.name, err)
		}
		c.ns = append(c.ns, namespace{file: f, flag: k.flag})
	}
	var err error
	if c.user, err = startWorker(c.confine(false, cfg.Marked)); err != nil {
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
		w, err := startWorker(c.confine(true, j.cfg.Marked))
		if err != nil {
			return nil, nil, fmt.Errorf("prepare a thread for root: %w", err)
		}
		c.root = w
	}
	return c, c.root, nil
}

// startInit forks init and waits until it has arranged its mounts.
func (j *Jail) startInit() (*Process, error) {
	in, out, files, err := initPipes()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer out.Close()

	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWIPC)
	if j.cfg.PIDNamespace {
		flags |= unix.CLONE_NEWPID
	}
	j.nursery.mu.RLock()
	defer j.nursery.mu.RUnlock()
	pidfd := -1
	pid, err := syscall.ForkExec("/proc/self/exe", []string{InitName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{files[0].Fd(), files[1].Fd(), 2},
		Sys:   &syscall.SysProcAttr{Cloneflags: flags, Setsid: true, PidFD: &pidfd},
	})
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("start inner init: %w", err)
	}
	p := newProcess(pid, pidfd)
	j.born(p)
	if err := j.instruct(in, out); err != nil {
		_ = p.Signal(unix.SIGKILL)
		status := p.Wait()
		return nil, fmt.Errorf("inner init (%s): %w", status, err)
	}
	return p, nil
}

// born makes a child known as this process's own.
func (j *Jail) born(p *Process) {
	if !j.cfg.PIDNamespace {
		j.nursery.children.Store(p.PID, p)
	}
}

// initPipes returns the agent's ends of init's standard input and output, and
// init's own.
func initPipes() (in, out *os.File, theirs [2]*os.File, err error) {
	r, in, err := os.Pipe()
	if err != nil {
		return nil, nil, theirs, fmt.Errorf("make a pipe: %w", err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		_, _ = r.Close(), in.Close()
		return nil, nil, theirs, fmt.Errorf("make a pipe: %w", err)
	}
	return in, out, [2]*os.File{r, w}, nil
}

// instruct gives init its orders and reads how it fared.
func (j *Jail) instruct(in, out *os.File) error {
	o := order{Hide: j.cfg.Hide, Proc: j.cfg.PIDNamespace}
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return fmt.Errorf("send orders: %w", err)
	}
	var r ready
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	for _, w := range r.Warnings {
		j.cfg.Log.Info("inner init", "warning", w)
	}
	return nil
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
