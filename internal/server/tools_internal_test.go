package server

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Large bodies wait for their share of memory, and not for good; whoever has it
// gives it back.
func TestLargeBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{bodies: semaphore.NewWeighted(largeTotal), bodyTime: bodyTime}
		take := func() (func(), error) {
			return s.large(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), collectShare)
		}
		var held []func()
		for range largeTotal / collectShare {
			release, err := take()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		if len(held) < 2 {
			t.Errorf("%d at once", len(held))
		}
		from := time.Now()
		if _, err := take(); sandbox.KindOf(err) != sandbox.Exhausted || time.Since(from) != largeWait {
			t.Errorf("one too many: %v after %v", err, time.Since(from))
		}
		go func() {
			time.Sleep(time.Second)
			held[0]()
		}()
		if _, err := take(); err != nil {
			t.Errorf("when another is done: %v", err)
		}
	})
}
