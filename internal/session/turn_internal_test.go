package session

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tn turn
		if !tn.try() {
			t.Fatal("a free turn was not given")
		}
		if tn.try() {
			t.Fatal("a turn was given twice")
		}
		var got []int
		enter := func(ctx context.Context, n int, limit <-chan time.Time) {
			go func() {
				if tn.take(ctx, limit) {
					got = append(got, n)
					tn.give()
				}
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		enter(t.Context(), 1, nil)
		enter(leaving, 2, nil)
		enter(t.Context(), 3, time.After(time.Second))
		enter(t.Context(), 4, time.After(time.Minute))
		leave()
		time.Sleep(2 * time.Second)
		tn.give()
		synctest.Wait()
		if want := []int{1, 4}; !slices.Equal(got, want) {
			t.Errorf("the turn went to %v, want %v", got, want)
		}
		if tn.taken || len(tn.waiting) != 0 {
			t.Errorf("left: %+v", &tn)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if !tn.take(ended, nil) { // nothing to wait for
			t.Error("a free turn was not given")
		}
	})
}
