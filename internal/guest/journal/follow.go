package journal

import (
	"slices"
	"time"
)

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

	// What follows is guarded by j.mu.
	behind bool      // no writer waits for it before it reads again
	waits  bool      // Next had nothing for it, and was not asked again
	asked  time.Time // when Next was last
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
	f.behind, f.waits, f.asked = false, false, time.Now()
	state := Ended
	for range streams {
		s := f.turn
		f.turn = (f.turn + 1) % streams
		st := &f.j.streams[s]
		if st.final >= 0 && f.next[s] >= max(st.final, f.until[s]) {
			continue
		}
		state = Idle
		if f.next[s] < st.start && f.next[s] >= int64(len(st.head)) {
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
	if f.waits = state == Idle; f.waits {
		f.j.spaceLocked() // who keeps the writer from what f waits for may be stuck
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
