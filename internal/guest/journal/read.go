package journal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// reads are the Reads of a stream that had all of it. Guarded by the journal's mu.
type reads struct {
	waiting int
	asked   time.Time // the last one
}

// Read returns what a stream has from an offset on, at most size bytes. Where
// there is nothing yet it waits, and is Idle when ctx ends first. An event
// whose Offset is more than was asked for says that what is between is gone.
//
// What is before release is not asked for again. Where the journal holds for
// readers, all from there on is kept, however many others follow: the writer waits.
func (j *Journal) Read(ctx context.Context, s Stream, from, release int64, size int) (Event, State) {
	for {
		j.mu.Lock()
		j.releaseLocked(s, min(from, release))
		ev, state := j.peekLocked(s, from, size)
		if state != Idle {
			j.mu.Unlock()
			return ev, state
		}
		if j.news == nil {
			j.news = make(chan struct{})
		}
		news := j.news
		j.reads[s].waiting++
		j.reads[s].asked = time.Now()
		j.spaceLocked() // who keeps the writer from what is waited for may be stuck
		j.mu.Unlock()
		over := false
		select {
		case <-news:
		case <-ctx.Done():
			over = true
		}
		j.mu.Lock()
		j.reads[s].waiting--
		j.mu.Unlock()
		if over {
			return ev, Idle
		}
	}
}

// releaseLocked lets the writer have the room before an offset.
func (j *Journal) releaseLocked(s Stream, to int64) {
	st := &j.streams[s]
	to = min(max(to, 0), st.end)
	if st.kept < 0 || to > st.kept {
		st.kept = to
		j.spaceLocked()
	}
}

// peekLocked returns what is there of a stream's own output.
func (j *Journal) peekLocked(s Stream, from int64, size int) (Event, State) {
	st := &j.streams[s]
	from = max(from, 0)
	if st.final >= 0 && from >= st.final {
		return Event{Stream: s, Offset: from, To: from}, Ended
	}
	at := from
	if at >= int64(len(st.head)) {
		at = max(at, st.start)
	}
	p := st.at(at)
	if st.final >= 0 {
		at = min(at, st.final)
		p = p[:min(int64(len(p)), st.final-at)]
	}
	if len(p) > 0 || at > from {
		data := bytes.Clone(p[:min(len(p), size)])
		return Event{Stream: s, Offset: at, Data: data, To: at + int64(len(data))}, Ready
	}
	return Event{Stream: s, Offset: from, To: from}, Idle
}

// Budget bounds the memory that ended commands' journals hold together: the
// one that ended first is discarded first. Those with a reader of FollowAll's are passed
// over, and count.
type Budget struct {
	mu    sync.Mutex
	limit int
	used  int
	ended []*Journal // oldest first
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// End puts a journal under the budget, once its command has ended.
func (b *Budget) End(j *Journal) { b.charge(j, j.end(b)) }

// charge accounts for n bytes more of j. It is called without any journal's
// lock.
func (b *Budget) charge(j *Journal, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && !j.listed {
		j.listed = true
		b.ended = append(b.ended, j)
	}
	b.used += n
	for i := 0; b.used > b.limit && i < len(b.ended); {
		oldest := b.ended[i]
		n, ok := oldest.discard()
		if !ok {
			i++
			continue
		}
		b.used -= n
		oldest.listed = false
		b.ended = slices.Delete(b.ended, i, i+1)
	}
}
