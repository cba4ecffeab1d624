package files

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		a, b := inode{1, 1}, inode{1, 2}
		take := func(ctx context.Context, file inode) error { return ts.take(ctx, file, time.Minute) }
		if err := errors.Join(take(t.Context(), a), take(t.Context(), b)); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() { second <- take(t.Context(), a) }()
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("two at once: %v", err)
		default:
		}
		ts.release(a)
		if err := <-second; err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := take(ctx, a); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the caller left: %v", err)
		}
		if err := take(t.Context(), a); codeOf(err) != connect.CodeUnavailable {
			t.Errorf("behind one that stalls: %v", err)
		}
		ts.release(a)
		ts.release(b)
		if len(ts.at) != 0 {
			t.Errorf("%d files are remembered", len(ts.at))
		}
	})
}
