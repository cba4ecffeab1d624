package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
	"github.com/carboy-sandbox/carboy/internal/guest/termmode"
)

// Orphan is who has killed a command that waited for a follower in vain.
const Orphan = "orphaned"

// Command is one that was started, whether it runs or has ended.
type Command struct {
	e       *Engine
	id      string
	spec    Spec
	started time.Time
	out     *journal.Journal
	input   input

	ready  chan struct{} // closed when what follows, and failed, is set
	failed error         // there is no such command after all

	proc    *jail.Process // nil: it was not started
	markMu  sync.RWMutex  // held for as long as mark is used
	mark    jail.Mark     // 0: none, or none any more
	group   *cgroup.Group // nil without cgroups
	refused bool          // not started, and perhaps for the number of processes
	term    *jail.Terminal
	outputs [2]*os.File

	done chan struct{} // closed when exit is set
	exit Exit

	mu       sync.Mutex
	timedOut bool
	tooLarge bool // it held more memory than it may
	killedBy string
	killSig  syscall.Signal
	killed   bool // everything was: whatever signal it dies of
	timeout  *time.Timer
	orphan   *time.Timer
	suspends int            // how often Ctrl-Z was typed, until it was looked for what that stopped
	readers  int            // Reads under way
	size     jail.Size      // of the terminal by now
	modes    termmode.Modes // that its output has set
}

func newCommand(e *Engine, id string, spec Spec) *Command {
	c := &Command{
		e: e, id: id, spec: spec, started: time.Now(),
		out:   journalOf(spec),
		ready: make(chan struct{}), done: make(chan struct{}),
		input: input{turn: make(chan struct{}, 1)},
	}
	if spec.Terminal != nil {
		c.size = *spec.Terminal
	}
	return c
}

// screenPatience is for how long a command that outlives who is attached to its terminal waits
// for one who reads nothing, such as a client that was suspended.
const screenPatience = 10 * time.Second

func journalOf(spec Spec) *journal.Journal {
	switch {
	case spec.Terminal == nil:
		return journal.New(spec.OrphanGrace > 0)
	case spec.OrphanGrace > 0:
		return journal.New(true).WithoutHead()
	}
	return journal.NewLasting(screenPatience)
}

// Spec returns what was asked for, with the user filled in.
func (c *Command) Spec() Spec { return c.spec }

// PID returns the main process's pid as the sandbox sees it, 0 where the
// command was not started.
func (c *Command) PID() int {
	if c.proc == nil {
		return 0
	}
	return c.proc.Inner
}

// Done is closed when Exit has an answer.
func (c *Command) Done() <-chan struct{} { return c.done }

// Exit returns how the command ended, and whether it has.
func (c *Command) Exit() (Exit, bool) {
	select {
	case <-c.done:
		return c.exit, true
	default:
		return Exit{}, false
	}
}

// open makes the command's end of its standard files and the engine's, and
// returns what to close after the fork, or of a terminal when the command has ended.
func (c *Command) open(jc *jail.Command) (theirs []*os.File, err error) {
	if c.spec.Files != nil {
		jc.Files, c.spec.Files = *c.spec.Files, nil
		return nil, nil
	}
	if c.spec.Terminal != nil {
		if c.term, err = c.e.opts.Spawner.OpenTerminal(jc.User, *c.spec.Terminal); err != nil {
			return nil, err
		}
		jc.Terminal = true
		jc.Files = [3]*os.File{c.term.Slave, c.term.Slave, c.term.Slave}
		c.outputs[journal.Stdout] = c.term.Master
		c.input.w, c.input.terminal = c.term.Master, true
		return []*os.File{c.term.Slave}, nil
	}
	defer func() {
		if err != nil {
			closeAll(theirs)
			c.closeOutput()
			c.input.end()
		}
	}()
	jc.Files[0] = c.e.null
	if c.spec.Stdin {
		r, w, err := pipe(false, jc.User.UID)
		if err != nil {
			return theirs, err
		}
		jc.Files[0], c.input.w = r, w
		theirs = append(theirs, r)
	}
	for s := range c.outputs {
		r, w, err := pipe(true, jc.User.UID)
		if err != nil {
			return theirs, err
		}
		c.outputs[s], jc.Files[1+s] = r, w
		theirs = append(theirs, w)
	}
	return theirs, nil
}

// pipe makes a pipe whose one end, the engine's, does not block. The command's
// does, and the pipe is its user's, who may open it again as /dev/stdout.
func pipe(read bool, uid uint32) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	ours := fds[1]
	if read {
		ours = fds[0]
	}
	err = unix.SetNonblock(ours, true)
	if err == nil && uid != 0 {
		err = unix.Fchown(ours, int(uid), -1)
	}
	if err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return nil, nil, fmt.Errorf("prepare a pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func (c *Command) closeOutput() {
	for _, f := range c.outputs {
		if f != nil {
			_ = f.Close()
		}
	}
}

// arm starts the clocks.
func (c *Command) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec.Timeout > 0 {
		c.timeout = time.AfterFunc(c.spec.Timeout, func() {
			c.mu.Lock()
			c.timedOut = true
			c.mu.Unlock()
			c.killLogged()
		})
	}
	c.awaitFollowerLocked()
}

// disarm stops the time limit. The wait for a follower goes on while output
// is held for one.
func (c *Command) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timeout != nil {
		c.timeout.Stop()
	}
}

func (c *Command) awaitFollowerLocked() {
	if c.spec.OrphanGrace == 0 {
		return
	}
	if c.orphan == nil {
		c.orphan = time.AfterFunc(c.spec.OrphanGrace, c.abandon)
		return
	}
	c.orphan.Reset(c.spec.OrphanGrace)
}

// abandon ends a command that nobody came back to.
func (c *Command) abandon() {
	c.mu.Lock()
	if c.out.Followed() || c.readers > 0 {
		c.mu.Unlock()
		return
	}
	if c.killedBy == "" {
		c.killedBy, c.killed = Orphan, true
	}
	c.mu.Unlock()
	// What lives on after a command's own end is not waiting for anyone.
	if _, ended := c.Exit(); !ended {
		c.killLogged()
	}
	c.out.Release()
}

func (c *Command) killLogged() {
	if err := c.killAll(); err != nil {
		c.e.log.Warn("kill a command", "id", c.id, "err", err)
	}
}

// Follower reads a command's output; see journal.Follower.
type Follower struct {
	*journal.Follower
	c *Command
}

// Follow attaches a reader at the given offsets of stdout and stderr.
func (c *Command) Follow(from [2]int64) *Follower {
	return c.follow(func() *journal.Follower { return c.out.Follow(from) })
}

// FollowEnd attaches a reader of what comes from now on.
func (c *Command) FollowEnd() *Follower { return c.follow(c.out.FollowEnd) }

func (c *Command) follow(attach func() *journal.Follower) *Follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orphan != nil {
		c.orphan.Stop()
	}
	return &Follower{Follower: attach(), c: c}
}

// Close detaches the reader.
func (f *Follower) Close() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.Follower.Close() && f.c.readers == 0 {
		f.c.awaitFollowerLocked()
	}
}

// Signal sends a signal on behalf of by. With all, everything that the
// command started gets it, and a kill returns when nothing of it is left; the
// command itself may have ended before. Without, the terminal's foreground
// process group gets it, or the main process's group.
func (c *Command) Signal(sig syscall.Signal, all bool, by string) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("%w: signal %d does not exist", ErrInvalid, int(sig))
	}
	_, ended := c.Exit()
	if c.proc == nil || (ended && !all) {
		return ErrEnded
	}
	c.mu.Lock()
	c.killedBy, c.killSig = by, sig
	c.killed = c.killed || (all && sig == unix.SIGKILL)
	c.mu.Unlock()
	if !all {
		return c.signalGroup(sig)
	}
	if sig == unix.SIGKILL {
		return c.killAll()
	}
	if c.group != nil {
		return c.group.Signal(sig)
	}
	c.markMu.RLock()
	defer c.markMu.RUnlock()
	_, err := jail.Marked(c.mark, sig)
	return err
}

func (c *Command) signalGroup(sig syscall.Signal) error {
	if c.term != nil {
		if group := c.term.Foreground(); group > 1 {
			if err := unix.Kill(-group, sig); !errors.Is(err, unix.ESRCH) {
				return err
			}
		} else if c.term.Type(sig) { // gVisor does not tell who has it
			return nil
		}
	}
	err := c.proc.SignalGroup(sig)
	if errors.Is(err, unix.ESRCH) {
		return ErrEnded
	}
	return err
}

// killAll ends everything that the command started, and waits for it.
func (c *Command) killAll() error {
	switch {
	case c.proc == nil:
		return nil
	case c.group != nil:
		return c.group.Kill()
	}
	c.markMu.RLock()
	defer c.markMu.RUnlock()
	left, err := jail.KillMarked(c.mark, 10*time.Second)
	if err == nil && left > 0 {
		err = cgroup.ErrBusy
	}
	return err
}

// unmark gives up the mark of a command that has ended, once nothing bears it;
// where it is to be forgotten, in any case. Until then the mark is nobody
// else's.
func (c *Command) unmark(forgotten bool) {
	if c.proc == nil || c.group != nil {
		return
	}
	c.markMu.Lock()
	defer c.markMu.Unlock()
	if c.mark == 0 {
		return
	}
	if left, err := jail.Bearers(c.mark); !forgotten && (err != nil || len(left) > 0) {
		return
	}
	c.mark = 0
	c.proc.Unmark()
}

// Resize changes the terminal's size.
func (c *Command) Resize(size jail.Size) error {
	if c.term == nil {
		return fmt.Errorf("%w: the command has no terminal", ErrInvalid)
	}
	if err := c.term.Resize(size); errors.Is(err, os.ErrClosed) {
		return ErrEnded
	} else if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
	return nil
}

// terminalState returns the size of the terminal by now, and the modes that are set.
func (c *Command) terminalState() (jail.Size, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size, c.modes.String()
}

// wrote notes what output does to the terminal.
func (c *Command) wrote(p []byte) {
	if c.term == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.modes.Write(p) // never fails
}
