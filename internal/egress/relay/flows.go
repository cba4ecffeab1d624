package relay

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Info is what an open flow is.
type Info struct {
	policy.Stream      // Conn from the beginning, Name and TLS once they are known
	Sniffed       bool // they are known: Set.Stream decides, and Set.Connect otherwise
	Unread        bool // its bytes are passed on as they are: where they are to be read it may not go on
	Rule          string
	// Waits: a person is asked about it. Consent is the revision of the policy under
	// which one has said yes; "": nobody has.
	Waits   bool
	Consent string
	Begun   time.Time // set by Open
}

// Why Open refuses.
var (
	ErrTooMany            = errors.New("too many connections are open")
	ErrTooManyDestination = errors.New("too many connections to one address are open")
)

// CutError is the cause with which a flow's context ends when a recheck cuts
// it.
type CutError struct{ Reason string }

// Error implements error.
func (e *CutError) Error() string { return "cut: " + e.Reason }

// Flows are the open flows of one sandbox: streams, flows of datagrams, and
// connections whose requests are read.
type Flows struct {
	max, perDestination int

	mu          sync.Mutex
	next        uint64
	open        map[uint64]*Flow
	destination map[netip.AddrPort]int
}

// NewFlows bounds how many flows are open, in all and to one destination. 0 is
// no bound.
func NewFlows(max, perDestination int) *Flows {
	return &Flows{
		max: max, perDestination: perDestination,
		open:        make(map[uint64]*Flow),
		destination: make(map[netip.AddrPort]int),
	}
}

// Flow is one that is open.
type Flow struct {
	ID     uint64
	flows  *Flows
	ctx    context.Context
	cancel context.CancelCauseFunc
	info   Info // guarded by flows.mu
	to     netip.AddrPort
	closed chan struct{}
}

// Open lists a flow, or refuses with ErrTooMany or ErrTooManyDestination. Its
// context ends with ctx, with Close, and with a *CutError when a recheck cuts
// it.
//
// Ask the policy after Open, and after each Update, never before: then a
// change is either seen by who asks, or by the recheck that follows it.
func (f *Flows) Open(ctx context.Context, info Info) (*Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.max > 0 && len(f.open) >= f.max && !weak.On(weak.NetFlowsUnbounded) {
		return nil, ErrTooMany
	}
	if f.perDestination > 0 && f.destination[info.Addr] >= f.perDestination {
		return nil, ErrTooManyDestination
	}
	f.next++
	info.Begun = time.Now()
	w := &Flow{ID: f.next, flows: f, info: info, to: info.Addr, closed: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	f.open[w.ID] = w
	f.destination[w.to]++
	return w, nil
}

// Context ends when the flow is to end; context.Cause says why.
func (w *Flow) Context() context.Context { return w.ctx }

// Info returns what the flow is as of now.
func (w *Flow) Info() Info {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	return w.info
}

// Update says more of what the flow is. Its address and the time of its
// beginning stay.
func (w *Flow) Update(change func(*Info)) {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	begun := w.info.Begun
	change(&w.info)
	w.info.Addr, w.info.Begun = w.to, begun
}

// Close takes the flow off the list, and ends its context. Closing again does
// nothing.
func (w *Flow) Close() {
	w.cancel(context.Canceled)
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	if w.flows.open[w.ID] == nil {
		return
	}
	delete(w.flows.open, w.ID)
	close(w.closed)
	if w.flows.destination[w.to]--; w.flows.destination[w.to] == 0 {
		delete(w.flows.destination, w.to)
	}
}

// Recheck asks of each open flow whether it may go on, cuts those that may
// not, and returns how many that were. To be called when a new policy is what
// everybody asks already.
func (f *Flows) Recheck(keep func(Info) (ok bool, reason string)) (cut int) {
	if weak.On(weak.NetRecheckOff) {
		return 0
	}
	for _, w := range f.list() {
		if ok, reason := keep(w.Info()); !ok {
			w.cancel(&CutError{Reason: reason})
			cut++
		}
	}
	return cut
}

// Settle waits until the flows that rechecks have cut are closed: until then, bytes that were
// under way may pass. It gives up when ctx is done.
func (f *Flows) Settle(ctx context.Context) {
	for _, w := range f.list() {
		if w.ctx.Err() == nil {
			continue
		}
		select {
		case <-w.closed:
		case <-ctx.Done():
			return
		}
	}
}

// list returns the open flows, the oldest first.
func (f *Flows) list() []*Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Flow, 0, len(f.open))
	for _, w := range f.open {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *Flow) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Len returns how many flows are open.
func (f *Flows) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}
