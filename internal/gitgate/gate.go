package gitgate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Remote is a repository upstream that an agent may work with.
type Remote struct {
	Name     string   // as the agent knows it: NAME.git
	URL      string   // ssh://git@host/path, git@host:path or https://host/path
	HostKeys []string // of an upstream by SSH, each a type and a key; none: it is not used
	Policy   Policy
}

// Check says what is wrong with a remote, without reaching it.
func (r Remote) Check() error {
	if _, err := r.Policy.complete(); err != nil {
		return fmt.Errorf("remote %s: %w", r.Name, err)
	}
	_, err := newUpstream(r, nil, nil, nil)
	return err
}

// Config is what a gate serves, and by what.
type Config struct {
	Dir     string // its own: mirrors, and what is being pushed
	Git     string // from jail.Find
	Remotes []Remote
	Keys    Keys
	Asker   Asker // nil: what would be asked is refused
	// Known has the secrets of the sandbox's own, which no push may have: it is asked at each, and where it
	// fails, that is refused. Their values are copied. nil: there are none.
	Known   func(ctx context.Context) ([]scan.Known, error)
	Dial    Dial           // nil: the machine's network
	Roots   *x509.CertPool // nil: the machine's
	Observe func(Event)    // told of each fetch and push when it is over; nil: nobody
	MaxDisk int64          // bytes that all of Dir may take; 0: no bound
}

// Event is a fetch or a push that is over.
type Event struct {
	Remote   string
	Service  string // "fetch" or "push"
	Updates  []Update
	Findings []Finding // MaxFindings at most
	Counts   []Count   // of all of them
	Outcome  string    // "done", "refused", "failed"
	Why      string    // of one that is not done, for the owner: a client may be told less
	Took     time.Duration
}

// Gate is the way of one sandbox's git to its remotes. It is an http.Handler.
type Gate struct {
	c       Config
	remotes map[string]*remote
	lock    *os.File
	serving chan struct{} // bounds what is done at once

	life context.Context // ends what is being sent on
	end  context.CancelCauseFunc
	mu   sync.Mutex
	shut bool           // nothing more is served
	busy sync.WaitGroup // of what is; under mu it is added to
}

// remote is one that is served.
type remote struct {
	Remote
	*mirror
	rules *scan.Rules
}

// lockName is the file by which a directory is one gate's.
const lockName = "lock"

// maxServing is how many requests run a git at once.
var maxServing = 8

// New makes a gate. It reaches no upstream before it is asked.
func New(c Config) (_ *Gate, err error) {
	g := &Gate{c: c, remotes: map[string]*remote{}, serving: make(chan struct{}, maxServing)}
	g.life, g.end = context.WithCancelCause(context.Background())
	if g.c.Dial == nil {
		g.c.Dial = (&net.Dialer{}).DialContext
	}
	if g.c.Observe == nil {
		g.c.Observe = func(Event) {}
	}
	if g.c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if g.lock, err = lockDir(g.c.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = g.lock.Close() // it was not written to
		}
	}()
	rules, err := scan.Load()
	if err != nil {
		return nil, err
	}
	for _, r := range c.Remotes {
		if err := g.add(r, rules); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// add makes a remote one that is served.
func (g *Gate) add(r Remote, rules *scan.Rules) error {
	if !gitremote.ValidName(r.Name) || g.remotes[r.Name] != nil {
		return sandbox.Errorf(sandbox.Invalid, "remote %.80q: that is no name of one, or is there twice", r.Name).WithHint("%s", gitremote.NameForm)
	}
	policy, err := r.Policy.complete()
	if err != nil {
		return fmt.Errorf("remote %s: %w", r.Name, err)
	}
	r.Policy = policy
	up, err := newUpstream(r, g.c.Keys, g.c.Dial, g.c.Roots)
	if err != nil {
		return err
	}
	m, err := newMirror(filepath.Join(g.c.Dir, r.Name, "git"), g.c.Git, up, g.room)
	if err != nil {
		return err
	}
	g.remotes[r.Name] = &remote{Remote: r, mirror: m, rules: rules}
	return nil
}

// lockDir has the directory for one gate alone.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(sandbox.Errorf(sandbox.Conflict, "another git gate has the directory %s", dir), f.Close())
	}
	return f, nil
}

// closeTime is for how long a push that is being sent upstream may go on when the gate ends.
var closeTime = 5 * time.Second

var errClosed = errors.New("the git gate ends")

// enterGate reports whether there is a gate yet, whose end then waits for leave.
func (g *Gate) enterGate() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, false
	}
	g.busy.Add(1)
	return g.busy.Done, true
}

// Close serves nothing any more, waits for what is under way, which it ends after a while, and
// gives the directory back.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	late := time.AfterFunc(closeTime, func() { g.end(errClosed) })
	g.busy.Wait()
	late.Stop()
	g.end(errClosed)
	if err := g.lock.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// enter waits until there is room for one more request.
func (g *Gate) enter(ctx context.Context) (func(), error) {
	select {
	case g.serving <- struct{}{}:
		return func() { <-g.serving }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
