package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A step is run again where anything that it follows from is another, and not
// otherwise.
func TestCacheKeys(t *testing.T) {
	steps := runs("one", "two", "three")
	with := func(i int, st Step) []Step {
		out := slices.Clone(steps)
		out[i] = st
		return out
	}
	tests := []struct {
		name   string
		change func(w *world)
		caller sandbox.Caller
		plan   Plan
		want   []string
	}{
		{name: "same", plan: Plan{Steps: steps}},
		{name: "another-name", plan: Plan{Steps: steps, StartCmd: "serve"}},
		{name: "a-step-more", plan: Plan{Steps: append(slices.Clone(steps), runs("four")...)}, want: []string{"four"}},
		{name: "a-step-less", plan: Plan{Steps: steps[:2]}},
		{name: "the-second", plan: Plan{Steps: with(1, runs("other")[0])}, want: []string{"other", "three"}},
		{name: "the-user", plan: Plan{Steps: with(1, Step{Type: "RUN", Args: []string{"two", "root"}})}, want: []string{"two", "three"}},
		{name: "the-letters", plan: Plan{Steps: with(1, Step{Type: "run", Args: []string{"two"}})}},
		{name: "an-environment", plan: Plan{Steps: with(0, Step{Type: "ENV", Args: []string{"A", "1"}})}, want: []string{"two", "three"}},
		{name: "all-anew", plan: Plan{Steps: steps, Force: true}, want: []string{"one", "two", "three"}},
		{
			name: "from-the-second-anew", plan: Plan{Steps: with(1, Step{Type: "RUN", Args: []string{"two"}, Force: true})},
			want: []string{"two", "three"},
		},
		{name: "another-owner", caller: bob, plan: Plan{Steps: steps}, want: []string{"one", "two", "three"}},
		{name: "an-image", plan: Plan{Steps: steps, FromImage: "debian:12"}, want: []string{"one", "two", "three"}},
		{name: "an-upgrade", change: func(w *world) { w.host = "v2" }, plan: Plan{Steps: steps}, want: []string{"one", "two", "three"}},
		{name: "a-restart", change: func(w *world) { w.Close(); w.reopen() }, plan: Plan{Steps: steps}},
		{name: "snapshots-gone", change: func(w *world) { clear(w.snapshots) }, plan: Plan{Steps: steps}, want: []string{"one", "two", "three"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.build(ann, "web", Plan{Steps: steps})
			w.commands()
			if tt.change != nil {
				tt.change(w)
			}
			c := tt.caller
			if c.Owner == "" {
				c = ann
			}
			w.build(c, "other", tt.plan)
			if diff := cmp.Diff(tt.want, w.commands()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(w.instances) != 0 {
				t.Errorf("%d sandboxes are left", len(w.instances))
			}
		})
	}
}

// An upgrade of the machine matters to templates of templates over it, and not
// to those over an image.
func TestHostUpgrade(t *testing.T) {
	w := newWorld(t)
	for _, from := range []string{"", "debian:12"} {
		w.build(ann, "below", Plan{FromImage: from})
		second := Plan{FromTemplate: "below", Steps: runs("above")}
		w.build(ann, "second", second)
		w.commands()
		w.host += "+"
		w.build(ann, "second", second)
		if again := len(w.commands()) > 0; again != (from == "") {
			t.Errorf("from %q: built again is %t", from, again)
		}
	}
}

// An image is pulled anew for a build that takes nothing from before.
func TestForcePulls(t *testing.T) {
	w := newWorld(t)
	auth := &Auth{Username: "ann", Password: "hunter2"}
	w.build(ann, "web", Plan{FromImage: "r.example/x:1", Auth: auth})
	w.build(ann, "web", Plan{FromImage: "r.example/x:1", Force: true})
	if len(w.pulled) != 2 || w.pulled[0].Fresh || !w.pulled[1].Fresh || w.pulled[0].Auth.Password != "hunter2" {
		t.Errorf("%+v", w.pulled)
	}
	if text := fmt.Sprintf("%v %+v %#v", w.pulled[0], w.db.builds, w.pulled[0]); strings.Contains(text, "hunter2") {
		t.Errorf("a password shows: %s", text)
	}
}

// A build ends at once wherever it is cancelled, and leaves no sandbox.
func TestCancelAtEachStep(t *testing.T) {
	steps := runs("one", "two", "three")
	for i, at := range []string{"one", "two", "three", "prove"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				reached := make(chan struct{})
				block := func(ctx context.Context) error {
					close(reached)
					<-ctx.Done()
					return context.Cause(ctx)
				}
				w.run = func(ctx context.Context, text string) (Exit, error) {
					if text == at {
						return Exit{}, block(ctx)
					}
					return Exit{}, nil
				}
				if at == "prove" {
					w.create = func(spec sandbox.Spec) error {
						if spec.Startup != nil {
							close(reached)
							return errors.New("it was cut")
						}
						return nil
					}
				}
				r := w.begin(ann, "web", Plan{Steps: steps, StartCmd: "serve"})
				<-reached
				if err := w.Cancel(t.Context(), ann, "web", r.ID); err != nil {
					t.Fatal(err)
				}
				got := w.ended(r)
				if got.Status != Failed || at != "prove" && (got.Reason.Message != errCancelled.Msg || got.Reason.Step != fmt.Sprint(i+1)) {
					t.Errorf("%+v %+v", got, got.Reason)
				}
				synctest.Wait()
				if len(w.instances) != 0 {
					t.Errorf("%d sandboxes are left", len(w.instances))
				}
				w.run, w.create = nil, nil
				w.commands()
				w.build(ann, "web", Plan{Steps: steps})
				if got, want := len(w.commands()), 3-i; got != want {
					t.Errorf("after it %d steps ran, want %d", got, want)
				}
			})
		})
	}
}

// One that was cancelled before its start can't be started, and one that is
// ready stays so.
func TestCancelBefore(t *testing.T) {
	w := newWorld(t)
	_, r, err := w.Request(t.Context(), ann, Request{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Cancel(t.Context(), ann, "web", r.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context(), ann, "web", r.ID, Plan{HostImage: true}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("start after the end: %v", err)
	}
	ready := w.build(ann, "web", Plan{})
	if err := w.Cancel(t.Context(), ann, "web", ready.ID); err != nil || w.ended(ready).Status != Ready {
		t.Errorf("cancel of one that is ready: %v, %+v", err, w.ended(ready))
	}
	if err := w.Cancel(t.Context(), bob, "web", ready.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("cancel by another: %v", err)
	}
}

// Two builds of one owner and four of all work at the same time; the rest wait,
// up to a bound.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		go1 := make(chan struct{})
		w.run = func(ctx context.Context, _ string) (Exit, error) {
			select {
			case <-go1:
				return Exit{}, nil
			case <-ctx.Done():
				return Exit{}, context.Cause(ctx)
			}
		}
		working := func() (n int) {
			synctest.Wait()
			w.Service.mu.Lock()
			defer w.Service.mu.Unlock()
			for _, r := range w.builds {
				if r.Status == Building {
					n++
				}
			}
			return n
		}
		var started []Record
		for i, want := range []int{1, 2, 2, 3, 4, 4, 4} {
			c := sandbox.Caller{Owner: fmt.Sprintf("uid:%d", i/3)}
			started = append(started, w.begin(c, fmt.Sprintf("t%d", i), Plan{Steps: runs(fmt.Sprint("step ", i))}))
			if got := working(); got != want {
				t.Errorf("%d were begun, and %d work, want %d", i+1, got, want)
			}
		}
		if !w.Busy() {
			t.Error("it is not busy")
		}
		// A queued one ends at once.
		if err := w.Cancel(t.Context(), sandbox.Caller{Owner: "uid:0"}, "t2", started[2].ID); err != nil {
			t.Fatal(err)
		}
		if got := w.ended(started[2]); got.Status != Failed || got.Reason.Message != errCancelled.Msg {
			t.Errorf("%+v", got.Reason)
		}
		close(go1)
		for i, r := range started {
			if got := w.ended(r); i != 2 && got.Status != Ready {
				t.Errorf("t%d: %+v", i, got.Reason)
			}
		}
		synctest.Wait()
		if w.Busy() || w.most > defaultAtOnce {
			t.Errorf("busy %t, %d sandboxes at the same time", w.Busy(), w.most)
		}
	})
}

// What is configured for an owner stands above the usual.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) {
			o.Bound = func(owner string) (int, int) {
				if owner == bob.Owner {
					return 2, 1
				}
				return 0, 0
			}
		})
		hold := make(chan struct{})
		w.run = func(context.Context, string) (Exit, error) { <-hold; return Exit{}, nil }
		a, b := w.begin(bob, "a", Plan{Steps: runs("x")}), w.begin(bob, "b", Plan{Steps: runs("y")})
		synctest.Wait()
		if len(w.instances) != 1 {
			t.Errorf("%d builds work of an owner that may have one", len(w.instances))
		}
		if _, _, err := w.Request(t.Context(), bob, Request{Name: "c"}); sandbox.KindOf(err) != sandbox.Exhausted {
			t.Errorf("a third template: %v", err)
		}
		if _, _, err := w.Request(t.Context(), ann, Request{Name: "c"}); err != nil {
			t.Errorf("another's: %v", err)
		}
		close(hold)
		w.ended(a)
		w.ended(b)
		var err error
		for range maxTags + 1 {
			_, _, err = w.Assign(t.Context(), bob, "a", []string{"v" + fmt.Sprint(len(w.tags))})
		}
		if sandbox.KindOf(err) != sandbox.Exhausted {
			t.Errorf("more tags than %d: %v", maxTags, err)
		}
	})
}

// So many may wait, and no more.
func TestQueueBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(ctx context.Context, _ string) (Exit, error) { <-ctx.Done(); return Exit{}, context.Cause(ctx) }
		for range maxQueued + defaultPerOwner {
			w.begin(ann, "web", Plan{Steps: runs("x")})
		}
		_, r, err := w.Request(t.Context(), ann, Request{Name: "web"})
		if err == nil {
			err = w.Start(t.Context(), ann, "web", r.ID, Plan{HostImage: true})
		}
		if sandbox.KindOf(err) != sandbox.Exhausted {
			t.Errorf("one more: %v", err)
		}
		if n := w.CancelAll(t.Context(), ann.Owner); n != maxQueued+defaultPerOwner {
			t.Errorf("%d were cancelled", n)
		}
	})
}

// A build that takes too long ends, and says so.
func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Time = time.Minute })
		w.run = func(ctx context.Context, _ string) (Exit, error) { <-ctx.Done(); return Exit{}, context.Cause(ctx) }
		got := w.ended(w.begin(ann, "web", Plan{Steps: runs("forever")}))
		if got.Status != Failed || !strings.Contains(got.Reason.Message, "longer than 1m0s") {
			t.Errorf("%+v", got.Reason)
		}
	})
}

// Builds of a daemon that ended are interrupted, those that wait to be started
// are not, and sandboxes of builds are removed.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(ctx context.Context, _ string) (Exit, error) { <-ctx.Done(); return Exit{}, context.Cause(ctx) }
		r := w.begin(ann, "web", Plan{Steps: runs("x")})
		_, waiting, err := w.Request(t.Context(), ann, Request{Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		killed := w.Service
		w.instances["sb_mine"] = &sandbox.Sandbox{ID: "sb_mine", Owner: ann.Owner}
		w.reopen() // while the records say that it is at work
		if got := w.ended(r); got.Status != Failed || !strings.Contains(got.Reason.Message, "interrupted") {
			t.Errorf("%+v", got.Reason)
		}
		if got := w.ended(waiting); got.Status != Waiting {
			t.Errorf("one that waits: %+v", got)
		}
		if len(w.instances) != 1 || w.instances["sb_mine"] == nil {
			t.Errorf("sandboxes: %v", w.instances)
		}
		killed.Close()
	})
}

// Closing ends what is under way, and says why.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(ctx context.Context, _ string) (Exit, error) { <-ctx.Done(); return Exit{}, context.Cause(ctx) }
		r := w.begin(ann, "web", Plan{Steps: runs("x")})
		synctest.Wait()
		w.Close()
		if got := w.db.builds[r.ID]; got.Status != Failed || !strings.Contains(got.Reason.Message, "shutting down") {
			t.Errorf("%+v", got.Reason)
		}
		_, next, err := w.Request(t.Context(), ann, Request{Name: "web"})
		if err == nil {
			err = w.Start(t.Context(), ann, "web", next.ID, Plan{})
		}
		if sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("a build of a service that is closed: %v", err)
		}
	})
}

// Tags move with builds that are ready, and only with those.
func TestTags(t *testing.T) {
	w := newWorld(t)
	first := w.build(ann, "web:v1", Plan{Steps: runs("one")})
	resolve := func(ref string) string {
		b, err := w.Resolve(t.Context(), ann, ref)
		if err != nil {
			return string(sandbox.KindOf(err))
		}
		return b.BuildID
	}
	if resolve("web:v1") != first.ID || resolve("web") != "not_found" {
		t.Errorf("web:v1 is %s, web is %s", resolve("web:v1"), resolve("web"))
	}
	if _, _, err := w.Assign(t.Context(), ann, "web:v1", []string{"default", "Stable"}); err != nil {
		t.Fatal(err)
	}
	second := w.build(ann, "web", Plan{Steps: runs("two")})
	w.run = func(context.Context, string) (Exit, error) { return Exit{Code: 1, Text: "status 1"}, nil }
	if got := w.ended(w.begin(ann, "web", Plan{Steps: runs("three")})); got.Status != Failed {
		t.Errorf("%+v", got)
	}
	for ref, want := range map[string]string{"web": second.ID, "web:stable": first.ID, "web:v1": first.ID, "web:default": second.ID} {
		if got := resolve(ref); got != want {
			t.Errorf("%s is %s, want %s", ref, got, want)
		}
	}
	if err := w.Untag(t.Context(), ann, "web", []string{"default"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("the default is taken away: %v", err)
	}
	if err := w.Untag(t.Context(), ann, "web", []string{"stable"}); err != nil || resolve("web:stable") != "not_found" {
		t.Errorf("%v, and web:stable is %s", err, resolve("web:stable"))
	}
}

// Others use what is public, by its owner's name, and nothing tells them of
// what is not.
func TestPublic(t *testing.T) {
	w := newWorld(t)
	w.build(ann, "web", Plan{Steps: runs("one")})
	for _, public := range []bool{false, true, false} {
		if _, err := w.SetPublic(t.Context(), ann, "web", public); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"uid-1/web", "web"} {
			_, err := w.Resolve(t.Context(), bob, ref)
			if can := err == nil; can != (public && ref != "web") || err != nil && err.Error() != unknown(ref).Error() {
				t.Errorf("public %t: %s by another: %v", public, ref, err)
			}
		}
		got := w.ended(w.begin(bob, "mine", Plan{FromTemplate: "uid-1/web", Steps: runs("mine")}))
		if (got.Status == Ready) != public {
			t.Errorf("public %t: a build from it: %+v", public, got.Reason)
		}
		if err := w.Delete(t.Context(), bob, "uid-1/web"); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("public %t: deleted by another: %v", public, err)
		}
	}
}

// More builds than may work at once start from what only the daemon makes.
func TestMakeWithinBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		turn := make(chan struct{}, 1)
		var made *Build
		w.Builtin("code", func(ctx context.Context) (Build, error) {
			turn <- struct{}{}
			defer func() { <-turn }()
			if made == nil {
				time.Sleep(time.Second) // until as many builds work as may
				b, err := w.Make(ctx, "carboy", Plan{Steps: runs("make"), HostImage: true})
				if err != nil {
					return b, err
				}
				made = &b
			}
			return *made, nil
		})
		var all []Record
		for i := range defaultAtOnce + 1 {
			c := sandbox.Caller{Owner: fmt.Sprintf("uid:%d", i)}
			all = append(all, w.begin(c, "web", Plan{FromTemplate: "code", Steps: runs("x")}))
		}
		for _, r := range all {
			if got := w.ended(r); got.Status != Ready {
				t.Errorf("%+v", got.Reason)
			}
		}
	})
}

// A template that is deleted while builds of it are begun is gone with all of
// them.
func TestDeleteMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun := make(chan struct{}, 10)
		w.run = func(ctx context.Context, _ string) (Exit, error) {
			begun <- struct{}{}
			<-ctx.Done()
			// Another is begun before this one has ended.
			if _, r, err := w.Request(t.Context(), ann, Request{Name: "web"}); err == nil && len(w.commands()) < 3 {
				_ = w.Start(t.Context(), ann, "web", r.ID, Plan{Steps: runs("again"), HostImage: true})
			}
			return Exit{}, context.Cause(ctx)
		}
		w.begin(ann, "web", Plan{Steps: runs("x")})
		<-begun
		w.commands()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		go func() { done <- w.Delete(ctx, ann, "web") }()
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.run = nil
		w.mu.Unlock()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(w.builds)+len(w.templates)+len(w.tags)+len(w.instances) != 0 {
			t.Errorf("left: %d builds, %d templates, %d sandboxes", len(w.builds), len(w.templates), len(w.instances))
		}
	})
}

// What images templates need is known, whether a step wrote over them or not.
func TestImagesInUse(t *testing.T) {
	w := newWorld(t)
	w.build(ann, "plain", Plan{FromImage: "debian:12"})
	if got := w.ImagesInUse(); len(got) != 1 || got[0] != "sha256:"+strings.Repeat("a", 64) {
		t.Errorf("%q", got)
	}
	if err := w.Delete(t.Context(), ann, "plain"); err != nil || len(w.ImagesInUse()) != 0 {
		t.Errorf("%q, %v", w.ImagesInUse(), err)
	}
}
