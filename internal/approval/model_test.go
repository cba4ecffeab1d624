package approval

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// model is what a queue ought to be: every question that is open, and every grant
// that lives, by nothing but what was done to it.
type model struct {
	t        *rapid.T
	q        *Queue
	revision int
	session  int
	waiters  []*waiter
	grants   map[Question]time.Time // and its end
	wait     time.Duration
}

type waiter struct {
	question Question
	id       string    // of what it waits for
	asked    time.Time // of its question, which may be older than it
	cancel   context.CancelFunc
	out      chan Outcome
}

func (m *model) name() string { return fmt.Sprint("r", m.revision) }

// open are those that ought to wait still.
func (m *model) open(question Question) (all []*waiter) {
	return m.those(func(w *waiter) bool { return w.question == question })
}

func (m *model) those(of func(*waiter) bool) (all []*waiter) {
	for _, w := range m.waiters {
		if of(w) {
			all = append(all, w)
		}
	}
	return all
}

// ends wants those who wait for one answer to end in a state, all of them.
func (m *model) ends(id string, want State) {
	synctest.Wait()
	var left []*waiter
	for _, w := range m.waiters {
		if w.id != id {
			left = append(left, w)
			continue
		}
		select {
		case out := <-w.out:
			if out.State != want {
				m.t.Fatalf("%s: %s, want %s", w.question.What(), out.State, want)
			}
		default:
			m.t.Fatalf("%s waits on, want %s", w.question.What(), want)
		}
		w.cancel()
	}
	m.waiters = left
}

func (m *model) endAll(want State) {
	for len(m.waiters) > 0 {
		m.ends(m.waiters[0].id, want)
	}
}

func (m *model) drawQuestion(t *rapid.T) Question {
	q := question(rapid.SampledFrom([]string{"/a", "/b", "/a?x"}).Draw(t, "target"))
	q.Method = rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
	q.Body = q.Method == "POST"
	q.Address = rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.2"}).Draw(t, "address")
	q.Revision = m.name()
	if rapid.IntRange(0, 9).Draw(t, "stale?") == 0 {
		q.Revision = fmt.Sprint("r", m.revision-1)
	}
	return q
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"ask":    m.ask,
		"answer": m.answer,
		"forge": func(t *rapid.T) { // an answer to what is not open, or to another question
			a := Answer{ID: "forged", Question: m.drawQuestion(t), Event: Allow}
			if h := m.look().Open; len(h) > 0 && rapid.Bool().Draw(t, "known?") {
				a.ID = h[0].ID
				a.Question.Target += "&forged"
			}
			if m.q.Answer(a) == nil {
				t.Fatal("a forged answer was taken")
			}
		},
		"policy": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "other?") > 0 {
				m.q.Use(m.name(), m.wait, func() {})
				return
			}
			m.revision++
			m.q.Use(m.name(), m.wait, func() {})
			clear(m.grants)
			m.endAll(Voided)
		},
		"daemon": func(t *rapid.T) {
			if rapid.Bool().Draw(t, "other?") {
				m.session++
				clear(m.grants)
				m.q.Attend(fmt.Sprint("s", m.session))
				m.endAll(Voided)
			}
			m.q.Attend(fmt.Sprint("s", m.session))
		},
		"leave": func(t *rapid.T) {
			if len(m.waiters) == 0 {
				return
			}
			i := rapid.IntRange(0, len(m.waiters)-1).Draw(t, "who")
			w := m.waiters[i]
			w.cancel()
			if out := <-w.out; out.State != Withdrawn {
				t.Fatalf("who left: %v", out)
			}
			m.waiters = append(m.waiters[:i:i], m.waiters[i+1:]...)
		},
		"time": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 11 * time.Second}).Draw(t, "passes"))
			synctest.Wait()
			for i := 0; i < len(m.waiters); {
				if w := m.waiters[i]; time.Since(w.asked) >= m.wait {
					m.ends(w.id, Expired)
					i = 0
					continue
				}
				i++
			}
		},
		"": func(t *rapid.T) { m.check(t) },
	}
}

func (m *model) ask(t *rapid.T) {
	question := m.drawQuestion(t)
	until, granted := m.grants[question]
	granted = granted && time.Now().Before(until) && question.Revision == m.name()
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiter{question: question, asked: time.Now(), cancel: cancel, out: make(chan Outcome, 1)}
	if others := m.open(question); len(others) > 0 && !question.Body {
		w.asked = others[0].asked
	}
	go func() { w.out <- m.q.Ask(ctx, question, nil) }()
	synctest.Wait()
	select {
	case out := <-w.out:
		cancel()
		switch {
		case out.State.LetsGo() && !granted:
			t.Fatalf("%s under %s is let go without a grant", question.What(), question.Revision)
		case granted && out.State != Granted, !granted && question.Revision == m.name():
			t.Fatalf("%s: %v, granted %v", question.What(), out, granted)
		}
	default:
		if granted || question.Revision != m.name() {
			t.Fatalf("%s under %s waits, granted %v", question.What(), question.Revision, granted)
		}
		for _, h := range m.look().Open {
			if h.Question == question && (!question.Body || !slices.ContainsFunc(m.waiters, func(o *waiter) bool { return o.id == h.ID })) {
				w.id = h.ID
			}
		}
		if w.id == "" {
			t.Fatalf("%s waits for another's answer", question.What())
		}
		m.waiters = append(m.waiters, w)
	}
}

func (m *model) answer(t *rapid.T) {
	h := m.look().Open
	if len(h) == 0 {
		return
	}
	one := h[rapid.IntRange(0, len(h)-1).Draw(t, "which")]
	event := rapid.SampledFrom([]Event{Allow, Grant, Deny}).Draw(t, "event")
	a := Answer{ID: one.ID, Question: one.Question, Event: event}
	if event == Grant {
		a.Until = time.Now().Add(rapid.SampledFrom([]time.Duration{3 * time.Second, 30 * time.Second}).Draw(t, "span"))
	}
	if err := m.q.Answer(a); err != nil {
		t.Fatalf("%s: %v", one.Question.What(), err)
	}
	if event == Grant {
		m.grants[one.Question] = a.Until
	}
	m.ends(one.ID, map[Event]State{Allow: Allowed, Grant: Granted, Deny: Denied}[event])
}

func (m *model) look() Snapshot {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return m.q.Look(ctx, 1<<62)
}

// check compares what is open.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	for _, w := range m.waiters {
		select {
		case out := <-w.out:
			t.Fatalf("%s ended by itself: %v", w.question.What(), out)
		default:
		}
	}
	waiting := 0
	for _, h := range m.look().Open {
		if n := len(m.those(func(w *waiter) bool { return w.id == h.ID })); n != h.Waiting {
			t.Fatalf("%s: %d wait, want %d", h.Question.What(), h.Waiting, n)
		}
		waiting += h.Waiting
	}
	if waiting != len(m.waiters) {
		t.Fatalf("%d wait, want %d", waiting, len(m.waiters))
	}
}

// TestModel does to a queue whatever can be done, in any order, and wants nothing to
// be let go but by an answer to that very question, or a grant of it that lives.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			m := &model{t: rt, q: NewQueue(), revision: 1, grants: map[Question]time.Time{}, wait: 10 * time.Second}
			m.q.Use(m.name(), m.wait, func() {})
			m.q.Attend("s0")
			defer func() {
				for _, w := range m.waiters {
					w.cancel()
				}
				m.q.Use("end", m.wait, func() {})
				synctest.Wait()
			}()
			rt.Repeat(m.actions())
		})
	})
}
