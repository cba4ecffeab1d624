package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// memory is a Store.
type memory struct {
	mu   sync.Mutex
	next int64
	all  map[int64]api.Approval
}

func (m *memory) DrawApprovals(_ context.Context, n int) (drawn []int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		m.next++
		drawn = append(drawn, m.next)
	}
	return drawn, nil
}

func (m *memory) PutApproval(_ context.Context, a api.Approval) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[a.ID] = a
	return nil
}

func (m *memory) Approval(_ context.Context, id int64) (api.Approval, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.all[id]; ok {
		return a, nil
	}
	return api.Approval{}, sandbox.Errorf(sandbox.NotFound, "approval %d: not found", id)
}

func (m *memory) Approvals(context.Context, string, int) (list []api.Approval, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.all {
		list = append(list, a)
	}
	return list, nil
}

// world is a desk whose gates say what fail is.
type world struct {
	*Desk
	mu      sync.Mutex
	answers []approval.Answer
	fail    error
	notes   []string
}

func newWorld(most int) *world {
	w := &world{}
	w.Desk = New(Options{
		Store: &memory{all: map[int64]api.Approval{}}, Max: most,
		Answer: func(_ context.Context, _ string, a approval.Answer) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answers = append(w.answers, a)
			return w.fail
		},
		Note: func(_ context.Context, _, _, text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.notes = append(w.notes, text)
		},
	})
	return w
}

var (
	owner = sandbox.Caller{Owner: "uid:1000"}
	other = sandbox.Caller{Owner: "uid:1001"}
	root  = sandbox.Caller{Owner: "uid:0", Admin: true}
)

func box(id string) *sandbox.Sandbox {
	return &sandbox.Sandbox{ID: id, Owner: owner.Owner, Spec: sandbox.Spec{Name: "web"}}
}

func holds(paths ...string) (s approval.Snapshot) {
	for _, p := range paths {
		s.Open = append(s.Open, approval.Held{ID: "gate-" + p, Waiting: 1, Asked: time.Now(), Expires: time.Now().Add(time.Minute), Question: approval.Question{
			Kind: approval.Request, Rule: "api", Revision: "r", Protocol: "https", Host: "api.example.com", Port: 443, Method: "GET", Target: p,
		}})
	}
	return s
}

func (w *world) list(t *testing.T, c sandbox.Caller) []api.Approval {
	t.Helper()
	list, err := w.List(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDecide(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a?q", "/b"))
	l.Seen(holds("/a?q", "/b")) // seen twice, asked once
	list := w.list(t, owner)
	if len(list) != 2 || len(w.list(t, root)) != 2 || len(w.list(t, other)) != 0 {
		t.Fatalf("lists: %+v", list)
	}
	id := list[0].ID
	if _, err := w.Decide(t.Context(), other, id, Decision{Allow: true}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("by another owner: %v", err)
	}
	w.fail = errors.New("no such question")
	if _, err := w.Decide(t.Context(), owner, id, Decision{Allow: true}); sandbox.KindOf(err) != sandbox.Conflict || len(w.list(t, owner)) != 2 {
		t.Errorf("a gate that takes no answer: %v", err)
	}
	w.fail = nil
	got, err := w.Decide(t.Context(), owner, id, Decision{Allow: true, By: "uid:1000", Reason: "it\x1b[31m"})
	if err != nil || got.State != "allowed" || got.Scope != "once" || got.By != "uid:1000" || strings.Contains(got.Target+got.What, "?q") {
		t.Errorf("allowed: %+v, %v", got, err)
	}
	if a := w.answers[len(w.answers)-1]; a.ID != "gate-/a?q" || a.Question.Target != "/a?q" || a.Event != approval.Allow {
		t.Errorf("the gate was told %+v", a)
	}
	if _, err := w.Decide(t.Context(), owner, id, Decision{}); sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "it was allowed by uid:1000") {
		t.Errorf("answered twice: %v", err)
	}
	l.Seen(holds("/a?q", "/b")) // what the gate said before it heard
	if len(w.list(t, owner)) != 1 {
		t.Errorf("what was answered is asked again: %+v", w.list(t, owner))
	}
	if len(w.notes) != 1 || strings.ContainsAny(w.notes[0], "\x1b?") {
		t.Errorf("events: %q", w.notes)
	}
}

func TestGateEnds(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a", "/b", "/c"))
	ids := w.list(t, owner)
	if _, err := w.Decide(t.Context(), owner, ids[0].ID, Decision{Allow: true, Scope: approval.Sandbox, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	s := holds("/c")
	s.Gone = []approval.Gone{{ID: "gate-/b", State: approval.Expired}}
	l.Seen(s)
	l.Lost()
	l.Seen(holds("/d")) // after it was lost, nothing counts
	all, err := w.List(t.Context(), owner, true)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, a := range all {
		states = append(states, a.State)
	}
	if got := strings.Join(states, " "); got != "voided expired voided" {
		t.Errorf("became %s", got)
	}
	// A gate that says that it was answered is not believed.
	l = w.Line(box("sb_a"))
	l.Seen(holds("/e"))
	l.Seen(approval.Snapshot{Gone: []approval.Gone{{ID: "gate-/e", State: approval.Allowed}}})
	if all, _ = w.List(t.Context(), owner, true); all[len(all)-1].State != "voided" {
		t.Errorf("a forged end: %+v", all[len(all)-1])
	}
}

// A question that is over by the time that the gate is told of an answer is no longer open.
func TestOverWhileItIsDecided(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a", "/b"))
	ids := w.list(t, owner)
	answer := w.o.Answer
	w.o.Answer = func(ctx context.Context, id string, a approval.Answer) error {
		s := holds("/b")
		s.Gone = []approval.Gone{{ID: "gate-/a", State: approval.Expired}}
		l.Seen(s)
		return answer(ctx, id, a)
	}
	w.fail = errors.New("no such question")
	for _, one := range ids {
		if _, err := w.Decide(t.Context(), owner, one.ID, Decision{Allow: true}); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("%s: %v", one.Target, err)
		}
		if list := w.list(t, owner); len(list) != 1 || list[0].ID != ids[1].ID {
			t.Errorf("open: %+v", list)
		}
	}
	if a, err := w.Get(t.Context(), owner, ids[0].ID); err != nil || a.State != string(approval.Expired) {
		t.Errorf("became %+v, %v", a, err)
	}
}

// slow is a Store in which something happens before a question is kept.
type slow struct {
	Store
	before func(id int64)
}

func (s slow) PutApproval(ctx context.Context, a api.Approval) error {
	s.before(a.ID)
	return s.Store.PutApproval(ctx, a)
}

// A question is there all the time, also between its end and when that is written down.
func TestFoundAllTheTime(t *testing.T) {
	w := newWorld(0)
	kept := 0
	w.o.Store = slow{w.o.Store, func(id int64) {
		kept++
		if a, err := w.Get(t.Context(), owner, id); err != nil || a.State != string(approval.Voided) {
			t.Errorf("it is %+v, %v", a, err)
		}
		if _, err := w.Get(t.Context(), other, id); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("another owner's: %v", err)
		}
	}}
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a"))
	l.Seen(holds())
	if kept != 1 {
		t.Errorf("kept %d times", kept)
	}
}

// Who answers what is void is told what asks the same now, where that is one.
func TestVoidedIsAskedAnew(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a?q", "/b"))
	ids := w.list(t, owner)
	s := holds("/a?q", "/a?p")
	first := s.Open[0].Question.Revision
	s.Gone = []approval.Gone{{ID: "gate-/a?q", State: approval.Voided}, {ID: "gate-/b", State: approval.Voided}}
	for i := range s.Open {
		s.Open[i].ID, s.Open[i].Question.Revision = fmt.Sprint("anew-", i), "r2"
	}
	l.Seen(s)
	answer := func(id int64) string {
		_, err := w.Decide(t.Context(), owner, id, Decision{Allow: true})
		return fmt.Sprint(err)
	}
	if got := answer(ids[0].ID); strings.Contains(got, "asked anew") || !strings.Contains(got, "it is void") {
		t.Errorf("two ask the same: %s", got)
	}
	s.Open = s.Open[:1]
	for _, revision := range []string{"r2", first} { // the policy may be as it was
		s.Open[0].ID, s.Open[0].Question.Revision = "anew-under-"+revision, revision
		l.Seen(s)
		now := w.list(t, owner)[0].ID
		if got := answer(ids[0].ID); !strings.Contains(got, fmt.Sprintf("it is asked anew as approval %d", now)) {
			t.Errorf("one asks the same: %s", got)
		}
	}
	if got := answer(ids[1].ID); strings.Contains(got, "asked anew") {
		t.Errorf("none asks the same: %s", got)
	}
}

func TestHostileGates(t *testing.T) {
	w := newWorld(0)
	bad := holds("/ok", "/\x1b]2;title", "/\xff", "/"+strings.Repeat("x", approval.MaxTarget))
	bad.Open = append(bad.Open, approval.Held{ID: "", Question: bad.Open[0].Question}, approval.Held{ID: strings.Repeat("x", 65), Question: bad.Open[0].Question}, approval.Held{ID: "none"})
	w.Line(box("sb_a")).Seen(bad)
	if list := w.list(t, owner); len(list) != 1 || list[0].Target != "/ok" {
		t.Errorf("shown: %+v", list)
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint("/", i))
	}
	w.Line(box("sb_b")).Seen(holds(many...))
	if n := len(w.list(t, owner)); n != 1+approval.MaxOpen {
		t.Errorf("%d questions of one gate", n-1)
	}
}

// There is room for so many of all, and the rest is refused at its gate.
func TestRoom(t *testing.T) {
	w := newWorld(3)
	w.Line(box("sb_a")).Seen(holds("/1", "/2"))
	w.Line(box("sb_b")).Seen(holds("/3", "/4", "/5"))
	if n := len(w.list(t, owner)); n != 3 || len(w.answers) != 2 || !w.answers[0].Full || w.answers[0].Event != approval.Deny {
		t.Errorf("%d are open, and gates were told %+v", n, w.answers)
	}
}

func TestSince(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a"))
	changes, version := w.Since(t.Context(), owner, 0)
	if len(changes) != 1 || changes[0].State != "asked" {
		t.Fatalf("the beginning: %+v", changes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if changes, _ := w.Since(ctx, owner, version); len(changes) != 0 {
		t.Errorf("nothing happened: %+v", changes)
	}
	if _, err := w.Decide(t.Context(), owner, changes[0].ID, Decision{}); err != nil {
		t.Fatal(err)
	}
	if changes, _ = w.Since(t.Context(), owner, version); len(changes) != 1 || changes[0].State != "denied" {
		t.Errorf("then: %+v", changes)
	}
	if changes, _ = w.Since(t.Context(), other, 0); len(changes) != 0 {
		t.Errorf("another's: %+v", changes)
	}
}

// Who follows before anything was ever asked hears of the first question.
func TestSinceTheFirst(t *testing.T) {
	w := newWorld(0)
	changes, version := w.Since(t.Context(), owner, 0)
	if len(changes) != 0 {
		t.Fatalf("of a fresh desk: %+v", changes)
	}
	w.Line(box("sb_a")).Seen(holds("/a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if changes, _ = w.Since(ctx, owner, version); len(changes) != 1 {
		t.Errorf("the first question: %+v", changes)
	}
}

// A grant whose time is over is ended, also where its gate has not said so.
func TestPastGrant(t *testing.T) {
	w := newWorld(0)
	l := w.Line(box("sb_a"))
	l.Seen(holds("/a", "/b"))
	id := w.list(t, owner)[0].ID
	if _, err := w.Decide(t.Context(), owner, id, Decision{Allow: true, Scope: approval.Sandbox, For: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if a, err := w.Get(t.Context(), owner, id); err != nil || a.State != "ended" {
		t.Errorf("its time is over: %+v, %v", a, err)
	}
	l.Seen(holds("/b"))
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.notes[len(w.notes)-1]; !strings.Contains(last, "ended") {
		t.Errorf("events: %q", w.notes)
	}
}
