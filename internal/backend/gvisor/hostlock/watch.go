package hostlock

import (
	stdcontext "context"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/waiter"
)

// watch hears of each release of a lock inside, of one kind: fcntl's or flock's. Whatever
// is held outside is watched.
type watch struct {
	n     *inode
	on    waiter.Waitable // nil: it does not hear
	entry *waiter.Entry
	own   atomic.Int32 // releases that it is not to tell of: n makes them itself
}

// expect says that n is about to release something once.
func (w *watch) expect() {
	if w.on != nil {
		w.own.Add(1)
	}
}

// NotifyEvent implements waiter.EventListener. gVisor's locks are held meanwhile.
func (w *watch) NotifyEvent(waiter.EventMask) {
	for own := w.own.Load(); own > 0; own = w.own.Load() {
		if w.own.CompareAndSwap(own, own-1) {
			return
		}
	}
	if w.n == nil { // it was written down
		return
	}
	select {
	case w.n.wake <- struct{}{}:
	default:
	}
}

// start has w hear of releases from what take waits for: a lock that somebody holds.
// False: nobody does any more, and take took it.
func (w *watch) start(take func(context.Context) error) bool {
	w.entry = new(waiter.Entry)
	w.entry.Init(w, waiter.EventIn)
	c := &catcher{Context: background(), entry: w.entry}
	if take(c) == nil {
		return false
	}
	w.on = c.on
	w.own.Store(0)
	return true
}

func (w *watch) stop() {
	if w.on != nil {
		w.on.EventUnregister(w.entry)
		w.on, w.entry = nil, nil
	}
}

// catcher is a context in which nothing waits: who would is registered with what it was to
// wait for, and gives up.
type catcher struct {
	context.Context
	entry *waiter.Entry
	on    waiter.Waitable
}

// BlockOn implements context.Blocker.
func (c *catcher) BlockOn(w waiter.Waitable, _ waiter.EventMask) bool {
	c.on = w
	_ = w.EventRegister(c.entry) // which also unlocks what is locked here
	return false
}

func (n *inode) watchRanges(held fslock.LockRange) {
	if n.rangesWatch.on != nil {
		return
	}
	if n.rangesWatch.start(func(ctx context.Context) error {
		return n.locks.LockPOSIX(ctx, aProcess, 0, fslock.WriteLock, held, true)
	}) {
		n.startFollowing()
		return
	}
	_ = n.locks.UnlockPOSIX(background(), aProcess, held)
	n.settleRanges()
}

func (n *inode) watchWholes() {
	if n.wholesWatch.on != nil {
		return
	}
	if n.wholesWatch.start(func(ctx context.Context) error {
		return n.locks.LockBSD(ctx, aProcess, 0, fslock.WriteLock, true)
	}) {
		n.startFollowing()
		return
	}
	n.locks.UnlockBSD(aProcess)
	n.settleWholes()
}

func (n *inode) startFollowing() {
	if n.following {
		return
	}
	n.following = true
	inodes.Lock()
	n.users++
	inodes.Unlock()
	go n.follow()
}

// follow brings the host's locks to what is left inside, whenever something was
// released there, until nothing is.
func (n *inode) follow() {
	defer n.leave()
	for range n.wake {
		if n.settle() {
			return
		}
	}
}

// settle reports whether nothing is held any more.
func (n *inode) settle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settleRanges()
	n.settleWholes()
	n.announce()
	n.following = n.rangesWatch.on != nil || n.wholesWatch.on != nil
	return !n.following
}

func (n *inode) settleRanges() {
	n.trim(whole)
	if _, _, held := n.next(whole); !held {
		n.rangesWatch.stop()
		n.forgetRanges()
	}
}

// forgetRanges ends what there is for ranges where none is held.
func (n *inode) forgetRanges() {
	n.ranges.close()
	n.budget.put(0)
}

func (n *inode) settleWholes() {
	n.trimWhole()
	if n.wholes.open && !n.wholeHeld() {
		n.wholesWatch.stop()
		n.wholes.close()
	}
}

// StateTypeName implements state.Type.
func (w *watch) StateTypeName() string { return "carboy/hostlock.watch" }

// StateFields implements state.Type: of a watch nothing is written down.
func (w *watch) StateFields() []string { return nil }

// StateSave implements state.Type. A kernel that holds a lock outside is not written down:
// others would take the lock before it goes on. Who asks looks for locks before, and
// finds all but those that are taken in between.
func (w *watch) StateSave(state.Sink) {
	if w.n == nil {
		return
	}
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	if _, _, held := w.n.next(whole); held || w.n.wholes.locked {
		state.Failf("a program has a lock on a file in a shared directory")
	}
}

// StateLoad implements state.Type.
func (w *watch) StateLoad(stdcontext.Context, state.Source) {}

var _ state.SaverLoader = (*watch)(nil)

func init() { state.Register((*watch)(nil)) }

// background is the context of no task. gVisor's must not be asked for before its log is set.
var background = sync.OnceValue(context.Background)
