package hold_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
	"github.com/carboy-sandbox/carboy/test/long"
)

// A process is killed at any moment under many who read, write and sync: none of them is
// told of an error. Of a request that the kernel was copying to the process just then it
// was once.
func TestKeeperManyAtOnce(t *testing.T) {
	asksAgain(t)
	const workers = 6
	w := newWorld(t)
	dir := t.TempDir()
	m := w.serve(dir)
	f := w.showAt(dir, "it", 32<<20)
	defer f.Close()
	k := hold.NewKeeper(dir)
	defer k.Close()

	enough, done := make(chan struct{}), make(chan error, workers)
	rounds := make([]chan struct{}, workers) // each says of what it did, once more where somebody listens
	var working sync.WaitGroup
	for i := range workers {
		rounds[i] = make(chan struct{})
		working.Go(func() { done <- work(f, i, rounds[i], enough) })
	}
	for range long.Rounds(30, 500) {
		if err := k.Follow(t.Context(), m.sees(one)); err != nil {
			t.Fatal(err)
		}
		<-time.After(rand.N(20 * time.Millisecond))
		m.kill()
		m = w.serve(dir)
		if err := k.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, worked := range rounds {
			select {
			case <-worked:
			case err := <-done:
				t.Fatal(err)
			}
		}
	}
	close(enough)
	working.Wait()
	close(done)
	for err := range done {
		if err != nil {
			t.Error(err)
		}
	}
}

// work reads, writes and syncs an image until it is enough.
func work(f *os.File, of int, worked chan<- struct{}, enough <-chan struct{}) error {
	for n := 0; ; n++ {
		var err error
		at := int64(rand.N(24)) * block
		switch n % 8 {
		case 3:
			err = f.Sync()
		case 5:
			_, err = f.ReadAt(make([]byte, block), at)
		default:
			_, err = f.WriteAt(pattern(byte(n)), at)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("worker %d at %d", of, n), err)
		}
		select {
		case <-enough:
			return nil
		case worked <- struct{}{}:
		default:
		}
	}
}
