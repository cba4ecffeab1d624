// Package journal keeps the output of commands, so that a reader who lost its
// connection goes on where it was.
//
// Each stream of a command is a sequence of bytes with offsets from 0, of
// which the first and the last part are held in memory. While someone follows, or is waited
// for, the writer is made to wait rather than lose what has not been read;
// otherwise the oldest bytes behind the beginning go, and a reader that asks for them is told which. A
// follower that reads nothing while another reader waits for more is left behind: one
// that is stuck silences no others. The package knows no processes and does no I/O.
package journal

import (
	"context"
	"sync"
	"time"
)

// Stream is one of a command's two outputs. A terminal has only Stdout.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	streams
)

// Limits of a journal, per stream.
const (
	// Capacity is how many bytes are held at most, beside the beginning.
	Capacity = 1 << 20
	// Head is how many bytes of the beginning stay when the oldest go: how a command
	// began says what it was about, as its end says what came of it.
	Head = 64 << 10
	// Reserve is how much of what was given to the slowest follower is still
	// held for it: what its connection had not delivered when it broke.
	Reserve = Capacity / 2
	// StuckAfter is for how long a writer waits for a follower that reads nothing while
	// another reader has all and waits for more.
	StuckAfter = 500 * time.Millisecond

	smallest = 1 << 10 // first allocation
)

// Journal is the output of one command.
type Journal struct {
	mu        sync.Mutex
	hold      bool          // nothing unread is dropped, followed or not
	patience  time.Duration // for how long a writer waits for a follower that reads nothing; 0: for ever
	streams   [streams]stream
	followers []*Follower
	pinned    int            // followers that FollowAll has made
	left      [streams]int64 // where the slowest follower was when the last one left
	space     chan struct{}  // closed when a waiting writer should look again; nil while none waits
	news      chan struct{}  // closed when a waiting Read should look again; nil while none waits
	reads     [streams]reads
	budget    *Budget // once ended
	listed    bool    // the budget can discard it; guarded by the budget's mu
}

// stream is a ring buffer. Guarded by the journal's mu.
type stream struct {
	headless   bool   // no head is kept
	head       []byte // once what it holds may go from buf; it begins at 0
	buf        []byte // its length is a power of two, or 0
	start, end int64  // what is held: [start, end)
	final      int64  // where the command's own output ends; -1 while unknown
	kept       int64  // where what is kept for Read begins; -1: nobody reads
}

// New makes an empty journal. Where hold is set, the writer waits for readers
// even while nobody follows.
func New(hold bool) *Journal {
	j := &Journal{hold: hold}
	for i := range j.streams {
		j.streams[i].final, j.streams[i].kept = -1, -1
	}
	return j
}

// NewLasting makes an empty journal whose writer waits for nobody for longer than patience: a
// follower that reads nothing for so long loses what it has not read, and is told. It keeps no
// beginning.
func NewLasting(patience time.Duration) *Journal {
	j := New(false).WithoutHead()
	j.patience = patience
	return j
}

// WithoutHead makes a journal in which nothing was written yet keep no beginning. It is for
// terminals: what is on their screens is made of the newest.
func (j *Journal) WithoutHead() *Journal {
	for i := range j.streams {
		j.streams[i].headless = true
	}
	return j
}

// Write appends p to a stream. It waits while that would drop what a follower
// has still to read, and returns the cause of ctx if that ends first; then
// part of p may have been written.
func (j *Journal) Write(ctx context.Context, s Stream, p []byte) error {
	var since time.Time // there is no room since then; zero: there is
	for {
		j.mu.Lock()
		n := min(j.roomLocked(s), len(p))
		grown := j.streams[s].append(p[:n])
		p = p[n:]
		var look time.Duration
		switch {
		case n > 0:
			j.wakeLocked()
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if n == 0 && len(p) > 0 {
			look = j.leaveBehindLocked(s, since)
			if j.space == nil {
				j.space = make(chan struct{})
			}
		}
		space, budget := j.space, j.budget
		j.mu.Unlock()
		if budget != nil && grown > 0 {
			budget.charge(j, grown)
		}
		if len(p) == 0 {
			return nil
		}
		if n > 0 {
			continue
		}
		if err := await(ctx, space, look); err != nil {
			return err
		}
	}
}

// roomLocked returns how much may be written at once.
func (j *Journal) roomLocked(s Stream) int {
	st := &j.streams[s]
	if len(j.followers) == 0 && !j.hold {
		return Capacity
	}
	read := j.left[s]
	if len(j.followers) > 0 {
		read = st.end
		for _, f := range j.followers {
			if !f.behind {
				read = min(read, f.next[s])
			}
		}
	}
	from := max(read-Reserve, 0)
	if j.hold && st.kept >= 0 {
		if len(j.followers) == 0 {
			from = st.kept
		}
		from = min(from, st.kept)
	}
	return int(max(0, Capacity-(st.end-from)))
}

// append writes p, at most Capacity, and returns by how much the memory in use grew.
func (st *stream) append(p []byte) int {
	before := len(st.buf) + len(st.head)
	st.saveHead(p)
	want := min(int64(Capacity), st.end-st.start+int64(len(p)))
	if int64(len(st.buf)) < want {
		size := max(smallest, len(st.buf))
		for int64(size) < want {
			size *= 2
		}
		st.resize(size)
	}
	for len(p) > 0 {
		n := copy(st.buf[st.end&int64(len(st.buf)-1):], p)
		p = p[n:]
		st.end += int64(n)
	}
	st.start = max(st.start, st.end-int64(len(st.buf)))
	return len(st.buf) + len(st.head) - before
}

// saveHead keeps the beginning before p, the first for which there is no room beside it.
func (st *stream) saveHead(p []byte) {
	if st.headless || st.head != nil || st.start > 0 || st.end+int64(len(p)) <= Capacity {
		return
	}
	st.head = make([]byte, 0, Head)
	for len(st.head) < Head && int64(len(st.head)) < st.end {
		held := st.at(int64(len(st.head)))
		st.head = append(st.head, held[:min(len(held), Head-len(st.head))]...)
	}
	st.head = append(st.head, p[:min(len(p), Head-len(st.head))]...)
}

// resize moves what is held to a buffer of size bytes, a power of two that
// holds it.
func (st *stream) resize(size int) {
	buf := make([]byte, size)
	for off := st.start; off < st.end; {
		p := st.at(off)
		off += int64(copy(buf[off&int64(size-1):], p))
	}
	st.buf = buf
}

// at returns what is held from off on, up to where the ring wraps or the beginning ends.
func (st *stream) at(off int64) []byte {
	if off < st.start {
		return st.head[min(off, int64(len(st.head))):]
	}
	if off >= st.end {
		return nil
	}
	i := off & int64(len(st.buf)-1)
	return st.buf[i:min(int64(len(st.buf)), i+st.end-off)]
}

// Settle says that all of the command's own output in a stream has been
// written. What others write later, who inherited the stream, is held as well
// but is nothing that a follower waits for.
func (j *Journal) Settle(s Stream) {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := &j.streams[s]
	if st.final < 0 {
		st.final = st.end
		j.wakeLocked()
	}
}

// Bytes returns how many bytes a stream had so far.
func (j *Journal) Bytes(s Stream) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.streams[s].end
}

// Release stops waiting for followers while there are none: the oldest bytes
// are dropped from now on.
func (j *Journal) Release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hold = false
	j.spaceLocked()
}

func (j *Journal) wakeLocked() {
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
	for _, f := range j.followers {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func (j *Journal) spaceLocked() {
	if j.space != nil {
		close(j.space)
		j.space = nil
	}
}

// end gives back memory that holds nothing, puts the journal under a budget,
// and returns what is in use.
func (j *Journal) end(b *Budget) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.budget = b
	n := 0
	for i := range j.streams {
		st := &j.streams[i]
		size := len(st.buf)
		for size > 0 && size/2 >= int(st.end-st.start) {
			size /= 2
		}
		if size != len(st.buf) {
			st.resize(size)
		}
		n += len(st.buf) + len(st.head)
	}
	return n
}

// discard drops everything held, unless that is for a reader, and returns how much
// memory that was.
func (j *Journal) discard() (n int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pinned > 0 {
		return 0, false
	}
	for i := range j.streams {
		st := &j.streams[i]
		n += len(st.buf) + len(st.head)
		st.buf, st.head, st.start = nil, nil, st.end
	}
	return n, true
}
