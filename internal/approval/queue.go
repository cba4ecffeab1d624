package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Bounds of a queue.
const (
	MaxOpen    = 64   // questions that are open
	maxWaiting = 1024 // that wait for them
	maxGrants  = 256  // that live
	maxGone    = 512  // that are remembered for who looks: all that one change can void
)

// Why something is not let go, beside the State of its question.
var (
	ErrFull     = errors.New("too many questions wait for an answer")
	ErrUnknown  = errors.New("no such question is open")
	ErrMismatch = errors.New("the answer is to another question")
)

// Queue holds what waits for an answer, for one sandbox. Its methods may be called
// by many goroutines.
type Queue struct {
	mu       sync.Mutex
	revision string
	timeout  time.Duration
	session  string // of the daemon that attends
	open     map[string]*entry
	asked    map[Question]*entry // those of them that equal ones join
	grants   map[Question]*entry
	waiting  int
	version  uint64
	changed  chan struct{} // closed, and replaced, when the version grows
	gone     []gone
}

type gone struct {
	Gone
	version uint64
}

// entry is one question.
type entry struct {
	id       string
	question Question
	push     *api.ApprovalPush
	state    State
	began    time.Time
	ends     time.Time // of the wait, and then of the grant
	timer    *time.Timer
	waiters  map[chan Outcome]struct{}
}

// Outcome is what became of one that waited.
type Outcome struct {
	State State
	Full  bool // it is refused for there are too many
	// Changed: it is void for the policy is another, under which it may be asked anew.
	Changed bool
}

// NewQueue returns a queue that lets nothing go before Use.
func NewQueue() *Queue {
	return &Queue{open: map[string]*entry{}, asked: map[Question]*entry{}, grants: map[Question]*entry{}, changed: make(chan struct{})}
}

// Use says which policy holds, and how long answers are waited for from now on.
// What was asked and granted under another is void; who waited may ask anew. hold has
// others decide by the policy: nobody asks after it and before the queue knows.
func (q *Queue) Use(revision string, timeout time.Duration, hold func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	hold()
	q.timeout = timeout
	if q.revision == revision {
		return
	}
	q.revision = revision
	if !weak.On(weak.NetAskStale) {
		q.voidLocked(Outcome{Changed: true})
	}
}

// Attend says which daemon looks after the queue. What an earlier one was asked and
// has granted is void with it.
func (q *Queue) Attend(session string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.session != "" && q.session != session {
		q.voidLocked(Outcome{})
	}
	q.session = session
}

func (q *Queue) voidLocked(out Outcome) {
	for _, e := range q.open {
		q.moveLocked(e, Void, out)
	}
	for _, e := range q.grants {
		q.moveLocked(e, Void, Outcome{})
	}
}

// keyOf is what a grant is looked up by.
func keyOf(question Question) Question {
	if weak.On(weak.NetAskLoose) {
		question = Question{Rule: question.Rule, Revision: question.Revision}
	}
	if weak.On(weak.NetAskStale) {
		question.Revision = ""
	}
	return question
}

// Ask waits until the question is answered, and is to go on only where the
// Outcome's state lets it go. It is withdrawn when ctx ends. begun is called once
// where it has to wait; nil: nobody wants to know.
func (q *Queue) Ask(ctx context.Context, question Question, begun func()) Outcome {
	return q.ask(ctx, question, nil, begun)
}

// AskPush is Ask for a push, with what it is about.
func (q *Queue) AskPush(ctx context.Context, question Question, push *api.ApprovalPush) Outcome {
	return q.ask(ctx, question, push, nil)
}

func (q *Queue) ask(ctx context.Context, question Question, push *api.ApprovalPush, begun func()) Outcome {
	if question.Check() != nil {
		return Outcome{State: Denied}
	}
	e, answered, out := q.join(question, push)
	if answered == nil {
		return out
	}
	if begun != nil {
		begun()
	}
	select {
	case out = <-answered:
	case <-ctx.Done():
		q.leave(e, answered)
		return Outcome{State: Withdrawn}
	}
	if out.State.LetsGo() && !q.holds(question) {
		return Outcome{State: Voided, Changed: true}
	}
	return out
}

// holds reports whether a question is of the policy that holds.
func (q *Queue) holds(question Question) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return question.Revision == q.revision || weak.On(weak.NetAskStale)
}

// join finds the question, or asks it. A nil channel: the Outcome is known.
func (q *Queue) join(question Question, push *api.ApprovalPush) (*entry, chan Outcome, Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.grants[keyOf(question)]; g != nil && time.Now().Before(g.ends) {
		return nil, nil, Outcome{State: Granted}
	}
	if question.Revision != q.revision {
		return nil, nil, Outcome{State: Voided, Changed: true}
	}
	e := q.asked[question]
	bounded := !weak.On(weak.NetAskUnbounded)
	if bounded && (q.waiting >= maxWaiting || e == nil && len(q.open) >= MaxOpen) {
		return nil, nil, Outcome{State: Denied, Full: true}
	}
	if e == nil {
		now := time.Now()
		e = &entry{id: rand.Text(), question: question, push: push, state: Asked, began: now, ends: now.Add(q.timeout), waiters: map[chan Outcome]struct{}{}}
		e.timer = time.AfterFunc(q.timeout, func() { q.expire(e) })
		if q.open[e.id] = e; !question.alone() {
			q.asked[question] = e
		}
	}
	answered := make(chan Outcome, 1)
	e.waiters[answered] = struct{}{}
	q.waiting++
	q.tellLocked()
	return e, answered, Outcome{}
}

// leave withdraws one that waited, and with the last one the question.
func (q *Queue) leave(e *entry, answered chan Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, there := e.waiters[answered]; !there {
		return
	}
	delete(e.waiters, answered)
	q.waiting--
	if len(e.waiters) == 0 {
		q.moveLocked(e, Withdraw, Outcome{})
		return
	}
	q.tellLocked()
}

// expire ends the wait for an answer, or a grant.
func (q *Queue) expire(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Now().Before(e.ends) { // it was granted meanwhile
		return
	}
	q.moveLocked(e, Expire, Outcome{})
}

// Answer answers a question that is open. An error changes nothing.
func (q *Queue) Answer(a Answer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.open[a.ID]
	switch {
	case e == nil:
		return ErrUnknown
	case a.Question != e.question || e.question.Revision != q.revision && !weak.On(weak.NetAskStale):
		return ErrMismatch
	case a.Event != Allow && a.Event != Grant && a.Event != Deny:
		return ErrMismatch
	case a.Event == Grant && len(q.grants) >= maxGrants:
		return ErrFull
	case a.Event == Grant && !time.Now().Before(a.Until):
		return ErrMismatch
	}
	if a.Event == Grant {
		e.ends = time.Now().Add(min(time.Until(a.Until), MaxGrant))
	}
	q.moveLocked(e, a.Event, Outcome{Full: a.Full && a.Event == Deny})
	return nil
}

// moveLocked has an event happen to a question, if it can, and tells who waits.
func (q *Queue) moveLocked(e *entry, event Event, out Outcome) {
	next, ok := e.state.Next(event)
	if !ok {
		return
	}
	e.timer.Stop()
	delete(q.open, e.id)
	if q.asked[e.question] == e {
		delete(q.asked, e.question)
	}
	if key := keyOf(e.question); q.grants[key] == e {
		delete(q.grants, key)
	}
	e.state, out.State = next, next
	for w := range e.waiters {
		w <- out
	}
	q.waiting -= len(e.waiters)
	e.waiters = nil
	if next == Granted {
		if old := q.grants[keyOf(e.question)]; old != nil { // equal ones may be granted one by one
			q.moveLocked(old, Expire, Outcome{})
		}
		q.grants[keyOf(e.question)] = e
		e.timer = time.AfterFunc(time.Until(e.ends), func() { q.expire(e) })
	}
	q.version++
	q.gone = append(q.gone, gone{Gone{e.id, next}, q.version})
	if len(q.gone) > maxGone { // of which a guest can make any number by leaving
		i := max(slices.IndexFunc(q.gone, func(g gone) bool { return g.State == Withdrawn }), 0)
		q.gone = slices.Delete(q.gone, i, i+1)
	}
	q.wakeLocked()
}

func (q *Queue) tellLocked() {
	q.version++
	q.wakeLocked()
}

func (q *Queue) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Look returns what the queue holds once that is not what it was at a version, or
// when ctx ends.
func (q *Queue) Look(ctx context.Context, after uint64) Snapshot {
	for {
		q.mu.Lock()
		changed := q.changed
		if q.version != after {
			defer q.mu.Unlock()
			return q.snapshotLocked(after)
		}
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.snapshotLocked(after)
		}
	}
}

func (q *Queue) snapshotLocked(after uint64) Snapshot {
	s := Snapshot{Version: q.version, Open: []Held{}, Gone: []Gone{}}
	for _, e := range q.open {
		s.Open = append(s.Open, Held{ID: e.id, Question: e.question, Asked: e.began, Expires: e.ends, Waiting: len(e.waiters), Push: e.push})
	}
	slices.SortFunc(s.Open, func(a, b Held) int { return a.Asked.Compare(b.Asked) })
	for _, g := range q.gone {
		if g.version > after {
			s.Gone = append(s.Gone, g.Gone)
		}
	}
	return s
}
