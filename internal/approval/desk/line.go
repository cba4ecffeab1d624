package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// answerTime bounds how long a gate may take to be told.
const answerTime = 10 * time.Second

// Line is what one gate process asks. It is a gate's word: nothing in it is taken
// for granted.
type Line struct {
	desk                *Desk
	sandbox, id, owner  string
	known               map[string]*item // by the gate's own ID; guarded by desk.mu
	refused             map[string]bool  // that there was no room for; guarded by desk.mu
	lost                bool             // guarded by desk.mu
	answer              func(ctx context.Context, a approval.Answer) error
	pushes              bool // it asks about pushes, and about nothing else
	badlySaid, crowding bool // it was logged; guarded by desk.mu
}

// Line begins to look after what the gate of sb asks. What an earlier gate of the
// same sandbox asked is void.
func (d *Desk) Line(sb *sandbox.Sandbox) *Line {
	return d.line(sb, false, func(ctx context.Context, a approval.Answer) error { return d.o.Answer(ctx, sb.ID, a) })
}

// Pushes is Line for what the git gate of sb asks, which answer is told.
func (d *Desk) Pushes(sb *sandbox.Sandbox, answer func(ctx context.Context, a approval.Answer) error) *Line {
	return d.line(sb, true, answer)
}

// lineKey is whose line it is.
type lineKey struct {
	sandbox string
	pushes  bool
}

func (d *Desk) line(sb *sandbox.Sandbox, pushes bool, answer func(context.Context, approval.Answer) error) *Line {
	l := &Line{
		desk: d, sandbox: sb.Spec.Name, id: sb.ID, owner: sb.Owner, known: map[string]*item{}, refused: map[string]bool{},
		answer: answer, pushes: pushes,
	}
	d.mu.Lock()
	old := d.lines[l.key()]
	d.lines[l.key()] = l
	d.mu.Unlock()
	if old != nil {
		old.Lost()
	}
	return l
}

func (l *Line) key() lineKey { return lineKey{l.id, l.pushes} }

// Lost voids what the gate asked, and what it was granted.
func (l *Line) Lost() {
	d := l.desk
	d.mu.Lock()
	l.lost = true
	if d.lines[l.key()] == l {
		delete(d.lines, l.key())
	}
	var ended []*item
	for _, it := range l.known {
		if d.liveLocked(it) && !it.deciding {
			d.endLocked(it, approval.Voided)
			ended = append(ended, it)
		}
	}
	clear(l.known)
	d.mu.Unlock()
	d.keepAll(ended)
}

// liveLocked reports whether a question is open, or its grant lives.
func (d *Desk) liveLocked(it *item) bool { return d.open[it.ID] == it || d.grants[it.ID] == it }

func (d *Desk) keepAll(ended []*item) {
	for _, it := range ended {
		d.keep(it.Approval)
	}
}

// Seen takes over what the gate holds now.
func (l *Line) Seen(s approval.Snapshot) {
	d := l.desk
	if len(s.Open) > approval.MaxOpen {
		s.Open = s.Open[:approval.MaxOpen]
	}
	if len(s.Open) > 0 {
		d.stock()
	}
	d.mu.Lock()
	if l.lost {
		d.mu.Unlock()
		return
	}
	ended := l.goneLocked(s)
	var fresh []*item
	var refused []approval.Held
	for _, h := range s.Open {
		it := l.known[h.ID]
		switch {
		case it != nil && d.open[it.ID] == it:
			if n := bounded(h.Waiting); it.Waiting != n {
				it.Waiting = n
				d.publishLocked(it)
			}
		case it != nil, l.refused[h.ID]: // it was answered, and the gate said this before
		default:
			if it := l.askedLocked(h); it != nil {
				fresh = append(fresh, it)
			} else {
				l.refused[h.ID] = true
				refused = append(refused, h)
			}
		}
	}
	told := make([]func(), 0, len(fresh))
	for _, it := range fresh {
		a := it.quiet()
		told = append(told, func() {
			if d.o.Tell != nil {
				d.o.Tell(a)
			}
		})
	}
	d.mu.Unlock()
	d.keepAll(ended)
	for _, tell := range told {
		tell()
	}
	for _, h := range refused {
		l.refuse(h)
	}
}

// bounded is a count that a gate gave.
func bounded(n int) int { return min(max(n, 1), 1<<20) }

// goneLocked ends what the gate no longer holds.
func (l *Line) goneLocked(s approval.Snapshot) (ended []*item) {
	d := l.desk
	now, held := map[string]approval.State{}, map[string]bool{}
	for _, g := range s.Gone {
		now[g.ID] = g.State
	}
	for _, h := range s.Open {
		held[h.ID] = true
	}
	for id := range l.refused {
		if !held[id] {
			delete(l.refused, id)
		}
	}
	for id, it := range l.known {
		state, gone := now[id]
		switch {
		case held[id]:
			it.became = ""
		case d.open[it.ID] == it:
			if !gone || state.LetsGo() || state == approval.Denied { // which it was told by nobody here
				state = approval.Voided
			}
			if !state.Final() || state == approval.Ended {
				state = approval.Voided
			}
			if it.deciding {
				it.became = state
				continue
			}
			d.endLocked(it, state)
			ended = append(ended, it)
			delete(l.known, id)
		case d.grants[it.ID] == it:
			if !gone && !time.Now().Before(it.Until) {
				gone, state = true, approval.Ended
			}
			if gone && (state == approval.Ended || state == approval.Voided) {
				d.endLocked(it, state)
				ended = append(ended, it)
				delete(l.known, id)
			}
		default:
			delete(l.known, id)
		}
	}
	return ended
}

// askedLocked puts a question before people; nil where it can't be.
func (l *Line) askedLocked(h approval.Held) *item {
	d := l.desk
	if err := h.Question.Check(); err != nil || h.ID == "" || len(h.ID) > 64 || l.pushes != (h.Question.Kind == approval.Push) {
		if !l.badlySaid {
			l.badlySaid = true
			d.o.Log.Warn("a gate asks what no gate asks", "id", l.id, "err", fmt.Sprint(err))
		}
		return nil
	}
	if len(d.open) >= d.o.Max {
		if !l.crowding {
			l.crowding = true
			d.o.Log.Warn("too many questions wait for an answer: further ones are refused", "id", l.id, "most", d.o.Max)
		}
		return nil
	}
	n := d.numberLocked()
	if n == 0 {
		return nil
	}
	q := h.Question
	it := &item{gate: h.ID, question: q, line: l}
	it.Approval.ID, it.Sandbox, it.SandboxID, it.Owner = n, l.sandbox, l.id, l.owner
	it.State, it.Kind, it.What = string(approval.Asked), string(q.Kind), q.What()
	it.Rule, it.Revision, it.Protocol, it.Host, it.Port = q.Rule, q.Revision, q.Protocol, q.Host, q.Port
	it.Address, it.Method, it.Target, it.Secret, it.Body = q.Address, q.Method, q.Target, q.Secret, q.Body
	if l.pushes {
		it.Push = h.Push
	}
	it.Asked, it.Expires, it.Waiting = h.Asked.UTC(), h.Expires.UTC(), bounded(h.Waiting)
	d.open[n], l.known[h.ID] = it, it
	d.publishLocked(it)
	return it
}

// refuse tells the gate that there is no room for a question.
func (l *Line) refuse(h approval.Held) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	a := approval.Answer{ID: h.ID, Question: h.Question, Event: approval.Deny, Full: true}
	if err := l.answer(ctx, a); err != nil {
		l.desk.o.Log.Debug("refuse a question", "id", l.id, "err", err)
	}
}
