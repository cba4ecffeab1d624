// Package journal keeps the output of commands, so that a reader who lost its
// connection goes on where it was.
//
// Each stream of a command is a sequence of bytes with offsets from 0, of
// which the last part is held in memory. While someone follows, or is waited
// for, the writer is made to wait rather than lose what has not been read;
// otherwise the oldest bytes go, and a reader that asks for them is told which. The
// package knows no processes and does no I/O.
package journal

import (
	"context"
	"slices"
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
	// Capacity is how many bytes are held at most.
	Capacity = 1 << 20
	// Reserve is how much of what was given to the slowest follower is still
	// held for it: what its connection had not delivered when it broke.
	Reserve = Capacity / 2

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
	budget    *Budget        // once ended
	listed    bool           // the budget can discard it; guarded by the budget's mu
}

// stream is a ring buffer. Guarded by the journal's mu.
type stream struct {
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
// follower that reads nothing for so long loses what it has not read, and is told.
func NewLasting(patience time.Duration) *Journal {
	j := New(false)
	j.patience = patience
	return j
}

// Write appends p to a stream. It waits while that would drop what a follower
// has still to read, and returns the cause of ctx if that ends first; then
// part of p may have been written.
func (j *Journal) Write(ctx context.Context, s Stream, p []byte) error {
	for {
		j.mu.Lock()
		n := min(j.roomLocked(s), len(p))
		grown := j.streams[s].append(p[:n])
		if n > 0 {
			j.wakeLocked()
		}
		p = p[n:]
		if n == 0 && j.space == nil {
			j.space = make(chan struct{})
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
		if err := j.await(ctx, s, space); err != nil {
			return err
		}
	}
}

// await returns when there may be room in a stream.
func (j *Journal) await(ctx context.Context, s Stream, space <-chan struct{}) error {
	var tired <-chan time.Time // never, unless patience has an end
	if j.patience > 0 {
		timer := time.NewTimer(j.patience)
		defer timer.Stop()
		tired = timer.C
	}
	select {
	case <-space:
	case <-tired:
		j.leaveBehind(s)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// leaveBehind waits no more for the followers that keep the writer of a stream from its room.
func (j *Journal) leaveBehind(s Stream) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.followers {
		if j.streams[s].end-max(f.next[s]-Reserve, 0) >= Capacity {
			f.behind = true
		}
	}
	j.spaceLocked()
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

// append writes p and returns by how much the memory in use grew.
func (st *stream) append(p []byte) int {
	before := len(st.buf)
	if len(p) > Capacity {
		st.end += int64(len(p) - Capacity)
		p = p[len(p)-Capacity:]
	}
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
	return len(st.buf) - before
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

// at returns what is held from off on, up to where the ring wraps.
func (st *stream) at(off int64) []byte {
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
		n += len(st.buf)
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
		n += len(st.buf)
		st.buf, st.start = nil, st.end
	}
	return n, true
}

// Follow attaches a reader that begins at the given offsets, of which those
// that are yet to come are taken as the end. It must be closed.
func (j *Journal) Follow(from [2]int64) *Follower {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &Follower{j: j, wake: make(chan struct{}, 1)}
	for i := range j.streams {
		f.next[i] = min(max(from[i], 0), j.streams[i].end)
		f.until[i] = j.streams[i].end
	}
	j.followers = append(j.followers, f)
	f.wake <- struct{}{}
	return f
}

// FollowAll attaches a reader from the beginning, for whom all is kept after the command's
// end, too: no budget discards it before the reader is closed.
func (j *Journal) FollowAll() *Follower {
	f := j.Follow([2]int64{})
	j.mu.Lock()
	defer j.mu.Unlock()
	f.pins = true
	j.pinned++
	return f
}

// FollowEnd attaches a reader that begins with what is written next.
func (j *Journal) FollowEnd() *Follower {
	const end = 1<<63 - 1
	return j.Follow([2]int64{end, end})
}

// Followed reports whether someone follows.
func (j *Journal) Followed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.followers) > 0
}

// Follower reads a journal. It is for one goroutine.
type Follower struct {
	j     *Journal
	wake  chan struct{}
	next  [streams]int64 // guarded by j.mu
	until [streams]int64 // what was there at the start is given even after the end
	turn  Stream
	pins  bool // FollowAll made it
	// behind: no writer waits for it before it reads again; guarded by j.mu.
	behind bool
}

// Event is a piece of output, or, where Data is nil, the news that
// [Offset, To) of the stream is gone.
type Event struct {
	Stream Stream
	Offset int64
	Data   []byte
	To     int64
}

// State is what Next found.
type State int

// The states.
const (
	Ready State = iota // there is an event
	Idle               // nothing now: wait for Wake
	Ended              // nothing more of the command's own will come
)

// Wake returns a channel that receives when Next should be asked again.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Next returns the next event, whose data is copied to buf. Streams take
// turns, for their order among each other is not known.
func (f *Follower) Next(buf []byte) (Event, State) {
	f.j.mu.Lock()
	defer f.j.mu.Unlock()
	f.behind = false
	state := Ended
	for range streams {
		s := f.turn
		f.turn = (f.turn + 1) % streams
		st := &f.j.streams[s]
		if st.final >= 0 && f.next[s] >= max(st.final, f.until[s]) {
			continue
		}
		state = Idle
		if f.next[s] < st.start {
			ev := Event{Stream: s, Offset: f.next[s], To: st.start}
			f.next[s] = st.start
			f.j.spaceLocked()
			return ev, Ready
		}
		if n := copy(buf, st.at(f.next[s])); n > 0 {
			ev := Event{Stream: s, Offset: f.next[s], Data: buf[:n], To: f.next[s] + int64(n)}
			f.next[s] += int64(n)
			f.j.spaceLocked()
			return ev, Ready
		}
	}
	return Event{}, state
}

// Close detaches the reader, and reports whether it was the last one.
func (f *Follower) Close() (last bool) {
	last, budget := f.leave()
	if budget != nil { // what was kept for f may be more than it allows
		budget.charge(f.j, 0)
	}
	return last
}

// leave is Close; it returns the budget that f has kept something from.
func (f *Follower) leave() (last bool, kept *Budget) {
	f.j.mu.Lock()
	defer f.j.mu.Unlock()
	i := slices.Index(f.j.followers, f)
	if i < 0 {
		return false, nil
	}
	f.j.followers = slices.Delete(f.j.followers, i, i+1)
	last = len(f.j.followers) == 0
	if last {
		f.j.left = f.next
	}
	if f.pins {
		f.j.pinned--
		kept = f.j.budget
	}
	f.j.spaceLocked()
	return last, kept
}
