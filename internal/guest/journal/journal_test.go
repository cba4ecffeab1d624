package journal_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

func write(t testing.TB, j *journal.Journal, s journal.Stream, p []byte) {
	t.Helper()
	if err := j.Write(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
}

// text is n bytes that tell where they belong.
func text(from, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((from + i) * 2654435761 >> 13)
	}
	return p
}

// ends are what is left of n bytes that nobody read.
func ends(n int) []byte {
	return append(text(0, journal.Head), text(n-journal.Capacity, journal.Capacity)...)
}

// drain reads until there is nothing to read.
func drain(t testing.TB, f *journal.Follower) (out [2][]byte, dropped [][3]int64, state journal.State) {
	t.Helper()
	buf := make([]byte, 4096)
	for {
		ev, state := f.Next(buf)
		switch {
		case state != journal.Ready:
			return out, dropped, state
		case ev.Data == nil:
			dropped = append(dropped, [3]int64{int64(ev.Stream), ev.Offset, ev.To})
		default:
			if ev.To != ev.Offset+int64(len(ev.Data)) {
				t.Fatalf("event %+v: ends elsewhere than its data", ev)
			}
			out[ev.Stream] = append(out[ev.Stream], ev.Data...)
		}
	}
}

func TestFollow(t *testing.T) {
	j := journal.New(false)
	write(t, j, journal.Stdout, []byte("hello"))
	write(t, j, journal.Stderr, []byte("oops"))
	f := j.Follow([2]int64{2, 0})
	defer f.Close()
	out, dropped, state := drain(t, f)
	if string(out[0]) != "llo" || string(out[1]) != "oops" || dropped != nil || state != journal.Idle {
		t.Errorf("got %q, dropped %v, state %v", out, dropped, state)
	}
	write(t, j, journal.Stdout, []byte("!"))
	j.Settle(journal.Stdout)
	if out, _, state = drain(t, f); string(out[0]) != "!" || state != journal.Idle {
		t.Errorf("one stream settled: got %q, state %v", out, state)
	}
	j.Settle(journal.Stderr)
	if _, _, state = drain(t, f); state != journal.Ended {
		t.Errorf("both settled: state %v", state)
	}
}

// What comes after a stream was settled is nobody's wait, but whoever comes
// later sees it.
func TestAfterTheEnd(t *testing.T) {
	j := journal.New(false)
	write(t, j, journal.Stdout, []byte("own"))
	early := j.Follow([2]int64{})
	defer early.Close()
	j.Settle(journal.Stdout)
	j.Settle(journal.Stderr)
	write(t, j, journal.Stdout, []byte("left"))
	buf := make([]byte, 3)
	if ev, state := early.Next(buf); state != journal.Ready || string(ev.Data) != "own" {
		t.Fatalf("got %+v, %v", ev, state)
	}
	if _, state := early.Next(buf); state != journal.Ended {
		t.Errorf("the early follower: state %v, want ended", state)
	}
	late := j.Follow([2]int64{})
	defer late.Close()
	if out, _, state := drain(t, late); string(out[0]) != "ownleft" || state != journal.Ended {
		t.Errorf("the late follower: got %q, state %v", out[0], state)
	}
	end := j.FollowEnd()
	defer end.Close()
	if out, _, state := drain(t, end); out[0] != nil || state != journal.Ended {
		t.Errorf("from the end on: got %q, state %v", out[0], state)
	}
}

func TestOldestDropped(t *testing.T) {
	j := journal.New(false)
	const n = 3*journal.Capacity + 17
	for off := 0; off < n; off += 1000 {
		write(t, j, journal.Stdout, text(off, min(1000, n-off)))
	}
	f := j.Follow([2]int64{5, 0})
	defer f.Close()
	out, dropped, _ := drain(t, f)
	if want := [3]int64{0, journal.Head, n - journal.Capacity}; len(dropped) != 1 || dropped[0] != want {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
	if want := ends(n)[5:]; !bytes.Equal(out[0], want) {
		t.Error("what is left is not the first and the last of what was written")
	}
}

func TestOneLargeWrite(t *testing.T) {
	j := journal.New(false)
	write(t, j, journal.Stdout, text(0, 5*journal.Capacity+3))
	f := j.Follow([2]int64{})
	defer f.Close()
	out, _, _ := drain(t, f)
	if want := ends(5*journal.Capacity + 3); !bytes.Equal(out[0], want) {
		t.Error("what is left is not the first and the last of what was written")
	}
}

// A writer waits for a slow follower, loses nothing, and leaves it what its
// connection may not have delivered.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(false)
		f := j.Follow([2]int64{})
		const n = 3 * journal.Capacity
		done := make(chan error, 1)
		go func() { done <- j.Write(context.Background(), journal.Stdout, text(0, n)) }()

		var got []byte
		buf := make([]byte, 70_000)
		for len(got) < n {
			synctest.Wait()
			if ahead := j.Bytes(journal.Stdout) - int64(len(got)); ahead > journal.Capacity {
				t.Fatalf("the writer is %d bytes ahead", ahead)
			}
			ev, state := f.Next(buf)
			if state != journal.Ready || ev.Data == nil {
				t.Fatalf("at %d: %+v, %v", len(got), ev, state)
			}
			got = append(got, ev.Data...)

			again := j.Follow([2]int64{max(0, int64(len(got)-journal.Reserve)), 0})
			if ev, _ := again.Next(buf); ev.Data == nil {
				t.Fatalf("at %d: the reserve is gone", len(got))
			}
			again.Close()
		}
		if err := <-done; err != nil || !bytes.Equal(got, text(0, n)) {
			t.Errorf("err %v, equal %t", err, bytes.Equal(got, text(0, n)))
		}
		f.Close()
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(true)
		done := make(chan error, 1)
		go func() { done <- j.Write(context.Background(), journal.Stdout, text(0, 2*journal.Capacity)) }()
		synctest.Wait()
		if got := j.Bytes(journal.Stdout); got != journal.Capacity {
			t.Errorf("written while nobody reads: %d, want %d", got, journal.Capacity)
		}
		f := j.Follow([2]int64{})
		buf := make([]byte, 10)
		if _, state := f.Next(buf); state != journal.Ready {
			t.Error("nothing to read")
		}
		if !f.Close() {
			t.Error("not the last follower")
		}
		synctest.Wait()
		if got := j.Bytes(journal.Stdout); got != journal.Capacity {
			t.Errorf("written after the follower left: %d, want %d", got, journal.Capacity)
		}
		j.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWriteGivesUp(t *testing.T) {
	j := journal.New(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the command was killed")
	cancel(reason)
	if err := j.Write(ctx, journal.Stdout, make([]byte, 2*journal.Capacity)); !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}
}

func TestBudget(t *testing.T) {
	b := journal.NewBudget(4096)
	var js []*journal.Journal
	for range 5 {
		j := journal.New(false)
		write(t, j, journal.Stdout, text(0, 1024))
		j.Settle(journal.Stdout)
		j.Settle(journal.Stderr)
		b.End(j)
		js = append(js, j)
	}
	kept := func(j *journal.Journal) bool {
		f := j.Follow([2]int64{})
		defer f.Close()
		out, dropped, state := drain(t, f)
		if state != journal.Ended || len(out[0]) == 0 && len(dropped) != 1 {
			t.Errorf("got %d bytes, dropped %v, state %v", len(out[0]), dropped, state)
		}
		return len(out[0]) == 1024
	}
	for i, j := range js {
		if got, want := kept(j), i > 0; got != want {
			t.Errorf("journal %d kept: %t, want %t", i, got, want)
		}
	}
	// One that was discarded and grows again takes part again.
	write(t, js[0], journal.Stdout, text(0, 2048))
	if kept(js[1]) || kept(js[2]) || !kept(js[3]) {
		t.Error("the two oldest should have gone")
	}
}

// Small outputs cost little.
func TestSmallOutput(t *testing.T) {
	allocs := testing.AllocsPerRun(100, func() {
		j := journal.New(false)
		_ = j.Write(context.Background(), journal.Stdout, []byte("hi\n"))
	})
	if allocs > 2 {
		t.Errorf("%v allocations", allocs)
	}
}

// Whatever the sizes, a follower sees each byte at its offset, once.
func FuzzFollow(f *testing.F) {
	f.Add(uint64(1), uint16(100))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		r := rand.New(rand.NewPCG(seed, 0))
		j := journal.New(false)
		var follower *journal.Follower
		at := int64(0)
		buf := make([]byte, 1+r.IntN(100_000))
		written := 0
		for range min(steps, 300) {
			switch r.IntN(4) {
			case 0, 1:
				n := r.IntN(200_000)
				if follower != nil { // it would wait for us
					n = min(n, journal.Capacity-journal.Reserve-(written-int(at)))
				}
				if n > 0 {
					write(t, j, journal.Stderr, text(written, n))
					written += n
				}
			case 2:
				if follower != nil {
					follower.Close()
					follower = nil
				} else if at >= int64(written)-journal.Reserve {
					follower = j.Follow([2]int64{0, at})
				} else {
					at = int64(written)
				}
			default:
				if follower == nil {
					continue
				}
				ev, state := follower.Next(buf)
				if state != journal.Ready {
					continue
				}
				if ev.Data == nil || ev.Offset != at || !bytes.Equal(ev.Data, text(int(at), len(ev.Data))) {
					t.Fatalf("at %d: offset %d, %d bytes", at, ev.Offset, len(ev.Data))
				}
				at = ev.To
			}
		}
	})
}

func BenchmarkThrough(b *testing.B) {
	j := journal.New(false)
	f := j.Follow([2]int64{})
	defer f.Close()
	p, buf := make([]byte, 32<<10), make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if err := j.Write(b.Context(), journal.Stdout, p); err != nil {
			b.Fatal(err)
		}
		for {
			if _, state := f.Next(buf); state != journal.Ready {
				break
			}
		}
	}
}

// A writer whose command outlives its terminal waits for a reader that reads nothing for as long
// as it has patience, and no longer; the reader is told what it lost, and waited for again.
func TestLasting(t *testing.T) {
	const patience = 10 * time.Second
	for name, lasting := range map[string]bool{"lasting": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := journal.New(false)
				if lasting {
					j = journal.NewLasting(patience)
				}
				f := j.Follow([2]int64{})
				defer f.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				err := j.Write(ctx, journal.Stdout, text(0, 3*journal.Capacity))
				if took := time.Since(began); lasting && (err != nil || took != patience) || !lasting && err == nil {
					t.Fatalf("after %s: %v", took, err)
				}
				if !lasting {
					return
				}
				out, dropped, _ := drain(t, f)
				if len(dropped) != 1 || !bytes.Equal(out[0], text(2*journal.Capacity, journal.Capacity)) {
					t.Errorf("dropped %v, and %d bytes are left", dropped, len(out[0]))
				}
				began = time.Now()
				if err := j.Write(ctx, journal.Stdout, text(0, journal.Capacity+1)); err != nil || time.Since(began) != patience {
					t.Errorf("the reader that came back is waited for %s, %v", time.Since(began), err)
				}
			})
		})
	}
}

// A follower that reads nothing is left behind while another reader waits for more, and told what
// it lost. Where nobody reads, and where all that are behind do read, the writer waits for them.
func TestStuckFollower(t *testing.T) {
	const n = 4 * journal.Capacity
	follow := func(t *testing.T, j *journal.Journal) { all(t, j.Follow([2]int64{}), n, 0) }
	for name, c := range map[string]struct {
		hold  bool
		other func(*testing.T, *journal.Journal) // nil: there is none
		waits bool                               // the writer, for the one that is stuck
	}{
		"another-follows": {other: follow},
		"held":            {hold: true, other: follow},
		"another-reads":   {hold: true, other: func(t *testing.T, j *journal.Journal) { polls(t, j, n) }},
		"another-looks":   {hold: true, other: func(t *testing.T, j *journal.Journal) { looks(t, j, n) }},
		"alone":           {waits: true},
		"alone-and-held":  {hold: true, waits: true},
		"another-is-stuck-too": {
			other: func(_ *testing.T, j *journal.Journal) { j.FollowEnd() }, waits: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := journal.New(c.hold)
				stuck := j.Follow([2]int64{})
				defer stuck.Close()
				var others sync.WaitGroup
				if c.other != nil {
					others.Go(func() { c.other(t, j) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := j.Write(ctx, journal.Stdout, text(0, n)); (err != nil) != c.waits {
					t.Fatalf("the writer waits: %v, want %v", err, c.waits)
				}
				others.Wait()
				if c.waits {
					return
				}
				out, dropped, _ := drain(t, stuck)
				if want := [3]int64{0, journal.Head, n - journal.Capacity}; len(dropped) != 1 || dropped[0] != want {
					t.Errorf("dropped %v, want %v", dropped, want)
				}
				if !bytes.Equal(out[0], ends(n)) {
					t.Errorf("what is left is not the ends of what was written: %d bytes", len(out[0]))
				}
			})
		})
	}
}

// One that reads slowly, but reads, loses nothing in the company of others.
func TestSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(false)
		const n = 3 * journal.Capacity
		slow, fast := j.Follow([2]int64{}), j.Follow([2]int64{})
		var readers sync.WaitGroup
		readers.Go(func() { all(t, fast, n, 0) })
		readers.Go(func() { all(t, slow, n, journal.StuckAfter-time.Millisecond) })
		write(t, j, journal.Stdout, text(0, n))
		readers.Wait()
	})
}

// all reads n bytes of stdout, none of which may be missing, with a pause before each piece.
func all(t *testing.T, f *journal.Follower, n int64, pause time.Duration) {
	defer f.Close()
	buf := make([]byte, 64<<10)
	for at := int64(0); at < n; {
		ev, state := f.Next(buf)
		if state == journal.Idle {
			<-f.Wake()
			continue
		}
		if state != journal.Ready || ev.Data == nil || ev.Offset != at {
			t.Errorf("at %d: %d to %d, %d bytes, %v", at, ev.Offset, ev.To, len(ev.Data), state)
			return
		}
		at = ev.To
		time.Sleep(pause)
	}
}

// polls reads n bytes of stdout by Read, and waits for what is to come.
func polls(t *testing.T, j *journal.Journal, n int64) {
	for at := int64(0); at < n; {
		ev, _ := j.Read(t.Context(), journal.Stdout, at, at, 64<<10)
		if ev.Offset != at {
			t.Errorf("at %d: %d", at, ev.Offset)
			return
		}
		at = ev.To
	}
}

// looks does so without waiting, again and again.
func looks(t *testing.T, j *journal.Journal, n int64) {
	for at := int64(0); at < n; {
		ev, state := read(j, journal.Stdout, at, at, 64<<10)
		if ev.Offset != at {
			t.Errorf("at %d: %d", at, ev.Offset)
			return
		}
		if at = ev.To; state == journal.Idle {
			time.Sleep(50 * time.Millisecond)
		}
	}
}
