package files

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// turnWait is how long an upload waits for another to the same file. One
// whose client has stalled may take any time.
const turnWait = 30 * time.Second

// inode tells a file from every other.
type inode struct{ dev, ino uint64 }

// turns let one upload at a time write to a file, so that two at once leave
// one of the two and not a mixture. The zero value is ready.
type turns struct {
	mu sync.Mutex
	at map[inode]*turn
}

type turn struct {
	ch   chan struct{} // holds a token while an upload writes
	refs int           // that write or wait
}

// take waits until no other upload writes to the file. After nil the caller
// must call release.
func (t *turns) take(ctx context.Context, file inode, wait time.Duration) error {
	t.mu.Lock()
	q := t.at[file]
	if q == nil {
		q = &turn{ch: make(chan struct{}, 1)}
		if t.at == nil {
			t.at = make(map[inode]*turn)
		}
		t.at[file] = q
	}
	q.refs++
	t.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case q.ch <- struct{}{}:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = faultf(connect.CodeUnavailable, "another upload has been writing to this file for %v; try again when it is done", wait)
	}
	t.leave(file, q)
	return err
}

// release lets the next one write.
func (t *turns) release(file inode) {
	t.mu.Lock()
	q := t.at[file]
	t.mu.Unlock()
	<-q.ch
	t.leave(file, q)
}

func (t *turns) leave(file inode, q *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.refs--; q.refs == 0 {
		delete(t.at, file)
	}
}
