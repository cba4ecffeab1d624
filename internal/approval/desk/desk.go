// Package desk brings what gates ask before people, and their answers to the gates:
// every question of this daemon's sandboxes, by a number, with who has answered it.
//
// It refuses answers of others than the owner, a second answer, more questions than
// it has room for, and whatever a gate says that no gate of ours would. What it
// can't carry out it does not say is done.
package desk

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of a desk.
const (
	DefaultMax = 1000 // questions that are open, of all sandboxes
	KeepPast   = 1000 // that were answered, or not, of each owner
	maxRecent  = 2000 // that are kept for who follows
	block      = 256  // numbers that are drawn at once
	maxReason  = 512
)

// Store keeps what became of questions.
type Store interface {
	// DrawApprovals returns n numbers at random that none of those kept has: a sandbox
	// must not know the number of what it asks, or it could have a person type it.
	DrawApprovals(ctx context.Context, n int) ([]int64, error)
	// PutApproval keeps one, and forgets the oldest of its owner's beyond KeepPast.
	PutApproval(ctx context.Context, a api.Approval) error
	Approval(ctx context.Context, id int64) (api.Approval, error)
	// Approvals lists those of an owner, or of all where that is "", newest first.
	Approvals(ctx context.Context, owner string, most int) ([]api.Approval, error)
}

// Options are what a Desk works with. Answer and Store are required.
type Options struct {
	// Answer tells a sandbox's gate.
	Answer func(ctx context.Context, sandboxID string, a approval.Answer) error
	Store  Store
	// Note writes a line into a sandbox's log; nil: nobody does.
	Note func(ctx context.Context, owner, sandboxID, text string)
	// Tell is told of what was asked and what became of it, without queries. It must
	// not block; nil: nobody is.
	Tell func(api.Approval)
	Max  int          // 0: DefaultMax
	Log  *slog.Logger // nil: discarded
}

// Desk is safe for use by several goroutines.
type Desk struct {
	o       Options
	session string

	stocking sync.Mutex // before mu

	mu      sync.Mutex
	open    map[int64]*item // asked
	grants  map[int64]*item // granted
	lines   map[lineKey]*Line
	numbers []int64 // for the next questions
	version uint64  // 0 is a follower's that has seen nothing
	recent  []change
	changed chan struct{} // closed, and replaced, with each version
}

// change is a question as it was at a version.
type change struct {
	version uint64
	api.Approval
}

// item is one question.
type item struct {
	api.Approval
	gate     string // its ID there
	question approval.Question
	line     *Line
	deciding bool
	// became is what the gate has told of it while it was being decided; "": it holds it.
	became approval.State
}

// New returns a desk.
func New(o Options) *Desk {
	o.Max = cmp.Or(o.Max, DefaultMax)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Desk{
		o: o, session: rand.Text(), open: map[int64]*item{}, grants: map[int64]*item{},
		lines: map[lineKey]*Line{}, version: 1, changed: make(chan struct{}),
	}
}

// Session is this desk's: gates void what another was asked.
func (d *Desk) Session() string { return d.session }

// stock draws numbers before there are too few for what a gate asks at once. The
// store takes its time, for which nobody else waits.
func (d *Desk) stock() {
	d.stocking.Lock()
	defer d.stocking.Unlock()
	d.mu.Lock()
	enough := len(d.numbers) >= block/2
	d.mu.Unlock()
	if enough {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	drawn, err := d.o.Store.DrawApprovals(ctx, block)
	if err != nil {
		d.o.Log.Error("number what sandboxes ask", "err", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers = append(d.numbers, drawn...)
}

// numberLocked is the next number, 0 where there is none to be had.
func (d *Desk) numberLocked() int64 {
	for len(d.numbers) > 0 {
		n := d.numbers[0]
		d.numbers = d.numbers[1:]
		if d.open[n] == nil && d.grants[n] == nil {
			return n
		}
	}
	return 0
}

// publishLocked shows a question as it is now to whoever follows.
func (d *Desk) publishLocked(it *item) {
	d.version++
	a := it.Approval
	d.recent = slices.DeleteFunc(d.recent, func(c change) bool { return c.ID == a.ID })
	d.recent = append(d.recent, change{d.version, a})
	if len(d.recent) > maxRecent { // of which some are over
		i := slices.IndexFunc(d.recent, func(c change) bool { return d.open[c.ID] == nil })
		d.recent = slices.Delete(d.recent, max(i, 0), max(i, 0)+1)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// endLocked is the end of a question, or the beginning of its grant.
func (d *Desk) endLocked(it *item, state approval.State) {
	delete(d.open, it.ID)
	delete(d.grants, it.ID)
	it.State, it.Waiting = string(state), 0
	it.Target = it.question.Path()
	it.What = it.question.Quiet()
	if it.Push != nil { // what was pushed is upstream, or nobody's
		p := *it.Push
		p.Diff = ""
		it.Push = &p
	}
	if it.Decided.IsZero() {
		it.Decided = time.Now().UTC()
	}
	if state == approval.Granted {
		d.grants[it.ID] = it
	}
	d.publishLocked(it)
}

// keep writes down what became of a question, and tells of it.
func (d *Desk) keep(it api.Approval) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if it.State != string(approval.Withdrawn) { // which a sandbox can have any number of
		if err := d.o.Store.PutApproval(ctx, it); err != nil {
			d.o.Log.Error("keep what became of a question", "approval", it.ID, "err", err)
		}
	}
	if d.o.Note != nil && it.State != string(approval.Withdrawn) {
		d.o.Note(ctx, it.Owner, it.SandboxID, EventText(it))
	}
	if d.o.Tell != nil {
		it.Push = nil
		d.o.Tell(it)
	}
}

// quiet is a question without its query, for who is told of it unasked.
func (it *item) quiet() api.Approval {
	a := it.Approval
	a.Target, a.What, a.Push = it.question.Path(), it.question.Quiet(), nil
	return a
}

// visible reports whether a question is a caller's. Others' do not exist for one.
func visible(c sandbox.Caller, a *api.Approval) bool { return c.Admin || a.Owner == c.Owner }

// List returns a caller's questions: those that are open, oldest first, or, with
// all, also what became of others.
func (d *Desk) List(ctx context.Context, c sandbox.Caller, all bool) ([]api.Approval, error) {
	d.mu.Lock()
	out := []api.Approval{}
	for _, it := range d.open {
		if visible(c, &it.Approval) {
			out = append(out, it.Approval)
		}
	}
	d.mu.Unlock()
	for i := range out {
		out[i].Push = nil
	}
	if all {
		owner := c.Owner
		if c.Admin {
			owner = ""
		}
		past, err := d.o.Store.Approvals(ctx, owner, KeepPast)
		if err != nil {
			return nil, err
		}
		for _, a := range past {
			if !slices.ContainsFunc(out, func(o api.Approval) bool { return o.ID == a.ID }) {
				a.Push = nil
				out = append(out, d.now(a))
			}
		}
	}
	slices.SortFunc(out, byAge)
	return out, nil
}

// byAge orders questions, the oldest first.
func byAge(a, b api.Approval) int {
	return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.ID, b.ID))
}

// now is a past question as it is: what an earlier daemon granted ended with it.
func (d *Desk) now(a api.Approval) api.Approval {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case a.State != string(approval.Granted):
	case !time.Now().Before(a.Until): // whether or not its gate has said so
		a.State = string(approval.Ended)
	case d.grants[a.ID] == nil:
		a.State = string(approval.Voided)
	}
	return a
}

// Get returns one of a caller's questions.
func (d *Desk) Get(ctx context.Context, c sandbox.Caller, id int64) (api.Approval, error) {
	d.mu.Lock()
	it := d.open[id]
	if it != nil && visible(c, &it.Approval) {
		defer d.mu.Unlock()
		return it.Approval, nil
	}
	d.mu.Unlock()
	a, err := d.o.Store.Approval(ctx, id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		a, err = d.lately(id)
	}
	if err == nil && !visible(c, &a) {
		return api.Approval{}, notFound(id)
	}
	return d.now(a), err
}

// lately is a question that has ended, and may not have been written down yet.
func (d *Desk) lately(id int64) (api.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.recent, func(c change) bool { return c.ID == id && d.open[id] == nil })
	if i < 0 {
		return api.Approval{}, notFound(id)
	}
	return d.recent[i].Approval, nil
}

func notFound(id int64) error {
	return sandbox.Errorf(sandbox.NotFound, "approval %d: not found", id).WithHint("carboy approve ls")
}

// Since returns what has changed of a caller's questions after a version, once
// there is something, or when ctx ends; version 0 is the beginning: what is open.
func (d *Desk) Since(ctx context.Context, c sandbox.Caller, after uint64) (changes []api.Approval, version uint64) {
	for {
		d.mu.Lock()
		changed, version := d.changed, d.version
		for _, ch := range d.recent {
			if after > 0 && ch.version > after && visible(c, &ch.Approval) {
				changes = append(changes, ch.Approval)
			}
		}
		for _, it := range d.open {
			if after == 0 && visible(c, &it.Approval) {
				changes = append(changes, it.Approval)
			}
		}
		d.mu.Unlock()
		if len(changes) > 0 || after == 0 {
			for i := range changes {
				changes[i].Push = nil
			}
			slices.SortFunc(changes, byAge)
			return changes, version
		}
		after = version
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, version
		}
	}
}
