package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/hostfiles"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// What is remembered of ended commands.
const (
	endedOutput  = 16 << 20 // bytes of output
	endedRecords = 10_000   // exits
)

// Spawner starts processes; *jail.Jail is one.
type Spawner interface {
	// Spawn starts a command. A *jail.StartError is the command's own fault.
	Spawn(jail.Command) (*jail.Process, jail.Mark, error)
	OpenTerminal(jail.User, jail.Size) (*jail.Terminal, error)
}

// Options configure an Engine.
type Options struct {
	Spawner Spawner
	// Lookup finds a user by name. Its errors are shown.
	Lookup func(name string) (account.Account, error)
	// Defaults returns what commands that start now get.
	Defaults func() Defaults
	// Cgroups keeps commands apart. Without it the Spawner must mark them.
	Cgroups   *cgroup.Hierarchy
	AllowRoot bool     // commands may run as uid 0
	DiskPaths []string // where to look for a full disk after a command failed
	NotShown  []string // directories of the host's PATH that this sandbox lacks: said of a command that is not found
	// HostFiles ends commands that hold too many of the host's files; nil:
	// nothing does.
	HostFiles *hostfiles.Watch
	Log       *slog.Logger
}

// Engine runs commands. Its methods may be called from several goroutines.
type Engine struct {
	opts   Options
	log    *slog.Logger
	null   *os.File
	ctx    context.Context // ends when the engine closes, with ErrClosed
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	budget *journal.Budget

	mu       sync.Mutex
	commands map[string]*Command
	byPID    map[int]*Command // running ones
	ended    []*Command       // oldest first
}

// New makes an engine.
func New(o Options) (*Engine, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the null device: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Engine{
		opts: o, log: o.Log, null: null, ctx: ctx, cancel: cancel,
		budget:   journal.NewBudget(endedOutput),
		commands: map[string]*Command{},
		byPID:    map[int]*Command{},
	}, nil
}

// Close kills all commands, and returns when nothing of the engine runs.
func (e *Engine) Close() {
	e.cancel(ErrClosed)
	for _, c := range e.List() {
		if err := c.killAll(); err != nil {
			e.log.Warn("kill a command", "id", c.id, "err", err)
		}
		c.closeOutput()
	}
	e.tasks.Wait()
	for _, c := range e.List() {
		c.unmark(true)
	}
	_ = e.null.Close()
}

// Start starts a command under an id, or returns the one that has it already.
// A command that can't be started for a fault of its own is a Command that
// has ended; an error means that there is none.
func (e *Engine) Start(id string, spec Spec) (*Command, error) {
	if err := check(id, &spec); err != nil {
		return nil, err
	}
	return e.begin(newCommand(e, id, spec))
}

// StartFollowed is Start under an id that nobody has, with a reader who misses nothing of
// the first output, nor of the last.
func (e *Engine) StartFollowed(id string, spec Spec) (*Command, *Follower, error) {
	if err := check(id, &spec); err != nil {
		return nil, nil, err
	}
	c := newCommand(e, id, spec)
	f := c.follow(c.out.FollowAll)
	known, err := e.begin(c)
	if err == nil && known != c {
		err = fmt.Errorf("%w: the id %s is another command's", ErrInvalid, id)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return c, f, nil
}

func check(id string, spec *Spec) error {
	if !validID(id) {
		return fmt.Errorf("%w: the id must be 1 to 64 of A-Z a-z 0-9 . _ -", ErrInvalid)
	}
	return spec.validate()
}

// begin starts c, or returns the command that has its id already.
func (e *Engine) begin(c *Command) (*Command, error) {
	id := c.id
	e.mu.Lock()
	if known, ok := e.commands[id]; ok {
		e.mu.Unlock()
		<-known.ready
		if known.failed != nil {
			return nil, known.failed
		}
		return known, nil
	}
	if err := context.Cause(e.ctx); err != nil {
		e.mu.Unlock()
		return nil, err
	}
	e.commands[id] = c
	e.mu.Unlock()

	err := e.start(c)
	if err != nil {
		e.mu.Lock()
		delete(e.commands, id)
		e.mu.Unlock()
		c.failed = err
	}
	close(c.ready)
	return c, err
}

const anonymous = "anon-"

// StartAnonymous starts a command under an id that nobody chose.
func (e *Engine) StartAnonymous(spec Spec) (*Command, error) {
	return e.Start(anonymousID(), spec)
}

func anonymousID() string { return anonymous + rand.Text() }

func (c *Command) anonymous() bool { return strings.HasPrefix(c.id, anonymous) }

// start does what Start says for a command that nobody else touches yet.
func (e *Engine) start(c *Command) error {
	d := e.opts.Defaults()
	if c.spec.User == "" {
		c.spec.User = d.User
	}
	a, err := e.opts.Lookup(c.spec.User)
	if err != nil {
		if errors.Is(err, account.ErrUnknown) {
			return fmt.Errorf("%w %q: use user, or an account of the sandbox's /etc/passwd", ErrUser, c.spec.User)
		}
		return fmt.Errorf("%w: %w", ErrUser, err)
	}
	if a.UID == 0 && !e.opts.AllowRoot {
		return fmt.Errorf("%w: user %s: this sandbox runs no command as root; leave out --user root, or make one behind gvisor", ErrDenied, c.spec.User)
	}
	if weak.On(weak.CommandsAsRoot) {
		a.UID, a.GID, a.Groups = 0, 0, nil
	}
	jc := jail.Command{
		Argv: c.spec.Argv, Env: c.spec.environ(a, d), Dir: c.spec.dir(a, d),
		User: jail.User{UID: a.UID, GID: a.GID, Groups: a.Groups},
	}
	if msg := tooLong(jc.Argv, jc.Env); msg != "" {
		e.end(c, notStarted(jail.CodeNotExecutable, "%s", msg))
		return nil
	}
	hidden := e.opts.NotShown
	if c.spec.Files != nil { // what is said goes to somebody inside
		hidden = nil
	}
	err = e.spawn(c, jc)
	if se, ok := errors.AsType[*jail.StartError](err); ok {
		exit := notStarted(se.Code, "%s%s", se.Msg, searched(jc, se, hidden))
		exit.dir = se.Dir
		if c.refused && errors.Is(se.Err, unix.EAGAIN) {
			exit.Limits = []string{"pids"}
		}
		e.end(c, exit)
		return nil
	}
	if errors.Is(err, cgroup.ErrFull) {
		exit := notStarted(jail.CodeNotExecutable, "%s: %v", jc.Argv[0], err)
		exit.Limits = []string{"pids"}
		e.end(c, exit)
		return nil
	}
	return err
}

// spawn starts the process and the goroutines that attend to it.
func (e *Engine) spawn(c *Command, jc jail.Command) (err error) {
	theirs, err := c.open(&jc)
	if err != nil {
		return err
	}
	if cg := e.opts.Cgroups; cg != nil {
		if c.group, err = cg.Acquire(); err == nil {
			jc.Cgroup = c.group.FD()
		}
	}
	if err == nil {
		c.proc, c.mark, err = e.opts.Spawner.Spawn(jc)
	}
	if err != nil || c.term == nil {
		closeAll(theirs)
	}
	if err != nil {
		c.closeOutput()
		c.input.end()
		if c.group != nil {
			c.refused = c.group.PIDsRefused() != cgroup.None
			c.group.Release()
		}
		return err
	}
	if c.group != nil {
		c.group.Begun()
	}
	e.mu.Lock()
	e.byPID[c.proc.Inner] = c
	e.mu.Unlock()
	for s, f := range c.outputs {
		if f != nil {
			p := &pump{c: c, stream: journal.Stream(s), file: f}
			e.tasks.Go(p.run)
		} else {
			c.out.Settle(journal.Stream(s))
		}
	}
	c.arm()
	if c.spec.Memory > 0 {
		e.tasks.Go(c.watchMemory)
	}
	e.tasks.Go(func() {
		exit := c.exitOf(c.proc.Wait())
		if c.term != nil {
			_ = c.term.Slave.Close() // nothing was written to it here
		}
		if exit.Reason == TimedOut {
			c.killLogged() // all of it was killed with it, and may not have gone yet
		}
		if slices.Contains(exit.Limits, "pids") && c.group != nil && c.group.Crowds() {
			exit.Error = c.clear()
		}
		e.end(c, exit)
		c.poke()
		c.unmark(false)
	})
	return nil
}

// clear ends what a command that ran into the limit of processes has left
// behind, where it would keep other commands from starting.
func (c *Command) clear() string {
	if err := c.killAll(); err != nil {
		return "what the command left running could not be ended: " + err.Error()
	}
	return "what the command left running was ended, to give others room"
}

// end records a command's exit.
func (e *Engine) end(c *Command, exit Exit) {
	exit.Duration = time.Since(c.started)
	c.disarm()
	c.input.end()
	if c.proc == nil {
		c.out.Settle(journal.Stdout)
		c.out.Settle(journal.Stderr)
	} else if c.group != nil {
		c.group.Release()
	}
	e.budget.End(c.out)

	e.mu.Lock()
	defer e.mu.Unlock()
	c.exit = exit
	if c.proc != nil && e.byPID[c.proc.Inner] == c {
		delete(e.byPID, c.proc.Inner)
	}
	e.ended = append(e.ended, c)
	if len(e.ended) > endedRecords {
		delete(e.commands, e.ended[0].id)
		forgotten := e.ended[0]
		e.tasks.Go(func() { forgotten.unmark(true) })
		e.ended[0] = nil
		e.ended = e.ended[1:]
	}
	close(c.done)
}

// Get returns a command by its id, or ErrNotFound.
func (e *Engine) Get(id string) (*Command, error) {
	e.mu.Lock()
	c, ok := e.commands[id]
	e.mu.Unlock()
	if ok {
		<-c.ready
		ok = c.failed == nil
	}
	if !ok {
		return nil, fmt.Errorf("%w: %.64q", ErrNotFound, id)
	}
	return c, nil
}

// List returns all commands that are known, the running and the ended, in no
// order.
func (e *Engine) List() []*Command {
	e.mu.Lock()
	all := make([]*Command, 0, len(e.commands))
	for _, c := range e.commands {
		all = append(all, c)
	}
	e.mu.Unlock()
	started := all[:0]
	for _, c := range all {
		if <-c.ready; c.failed == nil {
			started = append(started, c)
		}
	}
	return started
}

// Holding returns the command, ended or not, in whose group a process is. There
// is none of a process that is gone, nor without Options.Cgroups.
func (e *Engine) Holding(pid int) (*Command, bool) {
	for _, c := range e.List() {
		if c.group == nil {
			continue
		}
		if pids, err := c.group.Members(); err == nil && slices.Contains(pids, pid) {
			return c, true
		}
	}
	return nil, false
}

// Running returns the command whose main process has a pid inside.
func (e *Engine) Running(pid int) (*Command, bool) {
	e.mu.Lock()
	c, ok := e.byPID[pid]
	e.mu.Unlock()
	if ok {
		<-c.ready
	}
	return c, ok
}

func closeAll[C io.Closer](cs []C) {
	for _, c := range cs {
		_ = c.Close()
	}
}
