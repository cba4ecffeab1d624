package template

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What was not used for a month goes, by itself; what a tag leads to, or what a
// sandbox was made from, stays for good.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Now = nil }) // the bubble's own clock
		w.build(ann, "web", Plan{Steps: runs("one", "two")})
		tagged := w.build(ann, "web", Plan{Steps: runs("one", "other")})
		hash := strings.Repeat("ab", 32)
		if err := w.AddFile(t.Context(), ann.Owner, hash, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * 24 * time.Hour)
		w.build(ann, "fresh", Plan{Steps: runs("one")}) // uses the first step
		// Both later builds use the first step; the second of the first build is
		// one that no tag leads to any more.
		if u, err := w.Usage(t.Context(), ann); err != nil || u != (Usage{Steps: 3, Snapshots: 3, Size: 3000, Files: 1, FileSize: 1}) {
			t.Errorf("before a month: %+v, %v", u, err)
		}
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		if u, err := w.Usage(t.Context(), ann); err != nil || u != (Usage{Steps: 1, Snapshots: 2, Size: 2000}) {
			t.Errorf("after a month: %+v, %v", u, err)
		}
		w.commands()
		w.build(ann, "web", Plan{Steps: runs("one", "two")})
		if got := fmt.Sprint(w.commands()); got != "[two]" {
			t.Errorf("%s ran again", got)
		}
		if _, err := w.Resolve(t.Context(), ann, tagged.Template); err != nil {
			t.Error(err)
		}
	})
}

// An owner has so many steps kept, and the ones used longest ago go.
func TestTooManySteps(t *testing.T) {
	w := newWorld(t)
	for i := range maxCached + 3 {
		w.pass(time.Second)
		if err := w.remember(t.Context(), Cached{Key: fmt.Sprint(i), Owner: ann.Owner, UsedAt: w.now}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.remember(t.Context(), Cached{Key: "bob's", Owner: bob.Owner, UsedAt: w.now.Add(-24 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := w.sweep(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"0", "1", "2"} {
		if _, ok := w.cache[key]; ok {
			t.Errorf("step %s is kept", key)
		}
	}
	if len(w.cache) != maxCached+1 || len(w.db.cache) != maxCached+1 {
		t.Errorf("%d and %d are kept", len(w.cache), len(w.db.cache))
	}
}

// The cache of one owner is dropped at once; templates and others' caches stay.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.build(ann, "web", Plan{Steps: runs("one", "two")})
		w.build(bob, "web", Plan{Steps: runs("one", "two")})
		if err := w.AddFile(t.Context(), ann.Owner, strings.Repeat("ab", 32), strings.NewReader("archive")); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		w.run = func(context.Context, string) (Exit, error) { <-hold; return Exit{}, nil }
		r := w.begin(ann, "web", Plan{Steps: runs("one", "two", "three")})
		if _, err := w.Collect(t.Context(), ann); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("while a build is under way: %v", err)
		}
		close(hold)
		w.ended(r)
		synctest.Wait()
		dry, err := w.Droppable(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Collect(t.Context(), ann)
		if dry != got {
			t.Errorf("it was to drop %+v, and dropped %+v", dry, got)
		}
		// The snapshot that the tag leads to stays; those of the steps before it go.
		if want := (Usage{Steps: 3, Snapshots: 2, Size: 2000, Files: 1, FileSize: 7}); err != nil || got != want {
			t.Errorf("dropped %+v, %v", got, err)
		}
		if u, err := w.Usage(t.Context(), bob); err != nil || u.Steps != 2 || u.Snapshots != 2 {
			t.Errorf("another's: %+v, %v", u, err)
		}
		if _, err := w.Resolve(t.Context(), ann, "web"); err != nil {
			t.Error(err)
		}
	})
}
