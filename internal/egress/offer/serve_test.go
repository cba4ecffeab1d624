package offer_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
)

// A gate that is away is asked again, soon and then once a second, until the
// offer is over.
func TestServeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // by the bubble's clock, which no machine makes slow
		defer cancel()
		began := time.Now()
		var at []time.Duration
		err := offer.Serve(ctx, offer.Options{Handler: says(""), Dial: func(context.Context) (io.ReadWriteCloser, error) {
			at = append(at, time.Since(began))
			return nil, errors.New("away")
		}})
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("it ended with %v after %v", err, time.Since(began))
		}
		if len(at) < 50 || len(at) > 70 || at[3] > 500*time.Millisecond {
			t.Errorf("%d attempts, at %v", len(at), at[:4])
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap > time.Second {
				t.Errorf("%v between two attempts", gap)
			}
		}
	})
}

// What no time mends ends the offer, and is what it ends with.
func TestServeGivesUp(t *testing.T) {
	gone := errors.New("the sandbox is gone")
	told := 0
	err := offer.Serve(t.Context(), offer.Options{
		Handler: says(""),
		Dial:    func(context.Context) (io.ReadWriteCloser, error) { return nil, gone },
		Again:   func(err error) bool { return !errors.Is(err, gone) },
		Told:    func(error) { told++ },
	})
	if !errors.Is(err, gone) || told != 0 {
		t.Errorf("it ended with %v, and told %d times", err, told)
	}
}
