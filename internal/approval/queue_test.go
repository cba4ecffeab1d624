package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func question(path string) Question {
	return Question{Kind: Request, Rule: "api", Revision: "r1", Protocol: "https", Host: "api.example.com", Port: 443, Method: "GET", Target: path}
}

// ask asks in the background.
func ask(ctx context.Context, q *Queue, question Question) <-chan Outcome {
	out := make(chan Outcome, 1)
	go func() { out <- q.Ask(ctx, question, nil) }()
	synctest.Wait()
	return out
}

// held is what is open; version 0 is never a queue's that was asked.
func held(t *testing.T, q *Queue, n int) []Held {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := q.Look(ctx, 0)
	if len(s.Open) != n {
		t.Fatalf("%d questions are open, want %d: %+v", len(s.Open), n, s)
	}
	return s.Open
}

func answer(h Held, e Event) Answer {
	a := Answer{ID: h.ID, Question: h.Question, Event: e}
	if e == Grant {
		a.Until = time.Now().Add(time.Minute)
	}
	return a
}

// within runs f in a bubble, with a queue that waits for ten seconds.
func within(t *testing.T, f func(t *testing.T, q *Queue)) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Use("r1", 10*time.Second, func() {})
		f(t, q)
	})
}

func TestSameIsAskedOnce(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		a, b := ask(t.Context(), q, question("/a")), ask(t.Context(), q, question("/a"))
		h := held(t, q, 1)[0]
		if h.Waiting != 2 {
			t.Errorf("%d wait", h.Waiting)
		}
		if err := q.Answer(answer(h, Allow)); err != nil {
			t.Fatal(err)
		}
		if x, y := <-a, <-b; x.State != Allowed || y.State != Allowed {
			t.Errorf("became %v and %v", x, y)
		}
		c := ask(t.Context(), q, question("/a")) // once is once
		if err := q.Answer(answer(held(t, q, 1)[0], Deny)); err != nil {
			t.Fatal(err)
		}
		if out := <-c; out.State != Denied {
			t.Errorf("became %v", out)
		}
	})
}

// What carries more than is asked about is asked by itself, and once is once.
func TestBodiesAreAskedOneByOne(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		post := question("/transfer")
		post.Method, post.Body = "POST", true
		first, second := ask(t.Context(), q, post), ask(t.Context(), q, post)
		h := held(t, q, 2)
		if h[0].Waiting != 1 || h[1].Waiting != 1 {
			t.Errorf("wait: %+v", h)
		}
		if err := q.Answer(answer(h[0], Allow)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		held(t, q, 1)
		select {
		case out := <-first:
			first = second
			if out.State != Allowed {
				t.Errorf("became %v", out)
			}
		case out := <-second:
			if out.State != Allowed {
				t.Errorf("became %v", out)
			}
		}
		if out := <-first; out.State != Expired {
			t.Errorf("the other became %v", out)
		}
		for range MaxOpen { // and each counts
			ask(t.Context(), q, post)
		}
		if out := q.Ask(t.Context(), post, nil); !out.Full {
			t.Errorf("one more: %v", out)
		}
		// Granted one by one, one grant is left.
		if err := q.Answer(answer(held(t, q, MaxOpen)[0], Grant)); err != nil {
			t.Fatal(err)
		}
		if out := q.Ask(t.Context(), post, nil); out.State != Granted || len(q.grants) != 1 {
			t.Errorf("granted: %v, %d grants", out, len(q.grants))
		}
		if err := q.Answer(answer(held(t, q, MaxOpen-1)[0], Grant)); err != nil || len(q.grants) != 1 {
			t.Errorf("granted again: %v, %d grants", err, len(q.grants))
		}
		if out := q.Ask(t.Context(), post, nil); out.State != Granted {
			t.Errorf("granted twice: %v", out)
		}
	})
}

// A grant is for its question, whole, and for nothing else.
func TestGrantIsForItsQuestionAlone(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		first := ask(t.Context(), q, question("/a?b=c"))
		if err := q.Answer(answer(held(t, q, 1)[0], Grant)); err != nil {
			t.Fatal(err)
		}
		if out := <-first; out.State != Granted {
			t.Fatalf("became %v", out)
		}
		if out := q.Ask(t.Context(), question("/a?b=c"), nil); out.State != Granted {
			t.Fatalf("the same: %v", out)
		}
		others := []func(*Question){
			func(o *Question) { o.Target = "/a" },
			func(o *Question) { o.Target = "/a?b=d" },
			func(o *Question) { o.Method = "POST" },
			func(o *Question) { o.Host = "www.example.com" },
			func(o *Question) { o.Port = 8443 },
			func(o *Question) { o.Address = "192.0.2.2" },
			func(o *Question) { o.Body = true },
			func(o *Question) { o.Rule = "other" },
			func(o *Question) { o.Protocol = "http" },
			func(o *Question) { o.Kind, o.Secret = Secret, "TOKEN" },
		}
		for i, change := range others {
			o := question("/a?b=c")
			change(&o)
			if out := <-ask(t.Context(), q, o); out.State != Expired {
				t.Errorf("other %d, %s: %v, want that it waits in vain", i, o.What(), out)
			}
		}
		time.Sleep(time.Minute) // the end of the grant
		if out := <-ask(t.Context(), q, question("/a?b=c")); out.State != Expired {
			t.Errorf("after the grant's end: %v", out)
		}
	})
}

func TestChangedPolicyVoids(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		granted := ask(t.Context(), q, question("/granted"))
		if err := q.Answer(answer(held(t, q, 1)[0], Grant)); err != nil {
			t.Fatal(err)
		}
		<-granted
		open := ask(t.Context(), q, question("/open"))
		h := held(t, q, 1)[0]
		q.Use("r1", time.Second, func() {}) // the same policy, told again
		held(t, q, 1)
		q.Use("r2", 10*time.Second, func() {})
		if err := q.Answer(answer(h, Allow)); !errors.Is(err, ErrUnknown) {
			t.Errorf("an answer under the old policy: %v", err)
		}
		if out := <-open; out.State != Voided || !out.Changed {
			t.Errorf("what was open: %v", out)
		}
		for _, revision := range []string{"r1", "r2"} {
			again := question("/granted")
			again.Revision = revision
			out := <-ask(t.Context(), q, again)
			if out.State.LetsGo() || out.Changed != (revision == "r1") {
				t.Errorf("what was granted, asked under %s: %v", revision, out)
			}
		}
	})
}

func TestAnotherDaemonVoids(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		q.Attend("first")
		open := ask(t.Context(), q, question("/open"))
		q.Attend("first")
		held(t, q, 1)
		q.Attend("second")
		if out := <-open; out.State != Voided || out.Changed {
			t.Errorf("what was open: %v", out)
		}
	})
}

func TestBounded(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range MaxOpen {
			ask(ctx, q, question(fmt.Sprint("/", i)))
		}
		if out := <-ask(ctx, q, question("/more")); out.State != Denied || !out.Full {
			t.Errorf("one more: %v", out)
		}
		for range maxWaiting - MaxOpen {
			ask(ctx, q, question("/0"))
		}
		if out := <-ask(ctx, q, question("/0")); out.State != Denied || !out.Full {
			t.Errorf("one more that waits for the same: %v", out)
		}
		cancel() // all withdraw
		synctest.Wait()
		held(t, q, 0)
		if q.waiting != 0 || len(q.asked) != 0 || len(q.grants) != 0 {
			t.Errorf("left: %d wait, %d asked, %d grants", q.waiting, len(q.asked), len(q.grants))
		}
	})
}

func TestMismatchedAnswers(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		open := ask(t.Context(), q, question("/a"))
		h := held(t, q, 1)[0]
		bad := map[string]func(*Answer){
			"another path": func(a *Answer) { a.Question.Target = "/b" },
			"another ID":   func(a *Answer) { a.ID = "x" },
			"an event":     func(a *Answer) { a.Event = Expire },
			"no event":     func(a *Answer) { a.Event = "" },
			"a past grant": func(a *Answer) { a.Event, a.Until = Grant, time.Now() },
			"an old one":   func(a *Answer) { a.Question.Revision = "r0" },
		}
		for name, change := range bad {
			a := answer(h, Allow)
			change(&a)
			if err := q.Answer(a); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
		if out := <-open; out.State != Expired {
			t.Errorf("became %v", out)
		}
	})
}

func TestLongQuestionsAreRefused(t *testing.T) {
	q := NewQueue()
	q.Use("r1", time.Second, func() {})
	long := question("/" + string(make([]byte, MaxTarget)))
	if out := q.Ask(t.Context(), long, func() { t.Error("asked") }); out.State != Denied {
		t.Errorf("became %v", out)
	}
}

// Who leaves, however often between two looks, does not push out what became of a
// grant.
func TestLeavingHidesNothing(t *testing.T) {
	within(t, func(t *testing.T, q *Queue) {
		first := ask(t.Context(), q, question("/a"))
		h := held(t, q, 1)[0]
		if err := q.Answer(answer(h, Grant)); err != nil {
			t.Fatal(err)
		}
		<-first
		q.Attend("one")
		q.Attend("two")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 2 * maxGone {
			q.Ask(gone, question(fmt.Sprint("/", i)), nil)
		}
		s := q.Look(gone, 0)
		if i := slices.IndexFunc(s.Gone, func(g Gone) bool { return g == Gone{h.ID, Voided} }); i < 0 || len(s.Gone) > maxGone {
			t.Errorf("of %d, none says that the grant is void", len(s.Gone))
		}
	})
}
