package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Requests that may take much memory are few at once, of one owner and of all:
// more wait for the others' end, or for their own.
func TestHeavyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		under := map[string]int{}
		goOn := make(chan struct{})
		h := s.heavily(false, func(_ http.ResponseWriter, r *http.Request) {
			owner := auth.Of(r).Caller.Owner
			s.heavy.mu.Lock()
			under[owner]++
			s.heavy.mu.Unlock()
			<-goOn
		})
		ask := func(ctx context.Context, owner string, size int) {
			p := &auth.Principal{Caller: sandbox.Caller{Owner: owner}}
			r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(strings.Repeat("x", size)))
			r = auth.With(r, p)
			go h(httptest.NewRecorder(), r)
		}
		count := func() (n int) {
			synctest.Wait()
			for _, u := range under {
				n += u
			}
			return n
		}
		for range 5 {
			ask(t.Context(), "a", wire.MaxBody+1)
		}
		if count() != heavyOfOwner {
			t.Errorf("%d of one owner at once", count())
		}
		ask(t.Context(), "a", 100)
		if count() != heavyOfOwner+1 {
			t.Error("a small one waits")
		}
		for i := range 10 {
			ask(t.Context(), fmt.Sprint(i), wire.MaxBody+1)
		}
		if count() != heavyOfAll+1 {
			t.Errorf("%d of all at once", count())
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := s.heavy.enter(gone, "b")
			left <- err
		}()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone = %v", err)
		}
		close(goOn)
		if count() != 16 || s.heavy.all != 0 || len(s.heavy.by) != 0 {
			t.Errorf("%d were answered in the end, and %d %v are left", count(), s.heavy.all, s.heavy.by)
		}
	})
}

// Who waits too long for a turn is told to come again.
func TestHeavyRequestsAreNotWaitedForAtLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{bodyTime: bodyTime}
		enter := func() (func(), error) {
			return s.enterHeavy(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		}
		var held []func()
		for range heavyOfOwner {
			leave, err := enter()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, leave)
		}
		from := time.Now()
		if _, err := enter(); sandbox.KindOf(err) != sandbox.Exhausted || time.Since(from) != heavyWait {
			t.Errorf("one too many: %v after %v", err, time.Since(from))
		}
		go func() {
			time.Sleep(time.Second)
			held[0]()
		}()
		if _, err := enter(); err != nil {
			t.Errorf("when another is done: %v", err)
		}
	})
}
