package journal_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// read reads what is there at once.
func read(j *journal.Journal, s journal.Stream, from, release int64, size int) (journal.Event, journal.State) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return j.Read(ctx, s, from, release, size)
}

func TestRead(t *testing.T) {
	j := journal.New(true)
	if err := j.Write(t.Context(), journal.Stdout, []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from  int64
		size  int
		want  string
		state journal.State
	}{
		"the-beginning": {0, 4, "0123", journal.Ready},
		"again":         {0, 4, "0123", journal.Ready},
		"the-rest":      {4, 100, "456789", journal.Ready},
		"the-end":       {10, 100, "", journal.Idle},
		"beyond":        {11, 100, "", journal.Idle},
		"before":        {-1, 1, "0", journal.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			ev, state := read(j, journal.Stdout, c.from, 0, c.size)
			if string(ev.Data) != c.want || state != c.state {
				t.Errorf("%q, %v", ev.Data, state)
			}
		})
	}
	j.Settle(journal.Stdout)
	if err := j.Write(t.Context(), journal.Stdout, []byte("others'")); err != nil {
		t.Fatal(err)
	}
	if ev, state := read(j, journal.Stdout, 8, 0, 100); string(ev.Data) != "89" || state != journal.Ready {
		t.Errorf("up to the end: %q, %v", ev.Data, state)
	}
	if ev, state := read(j, journal.Stdout, 10, 0, 100); len(ev.Data) != 0 || state != journal.Ended {
		t.Errorf("at the end: %q, %v", ev.Data, state)
	}
	if _, state := read(j, journal.Stderr, 0, 0, 100); state != journal.Idle {
		t.Errorf("the other stream: %v", state)
	}
}

func TestReadOfWhatIsGone(t *testing.T) {
	j := journal.New(false)
	if err := j.Write(t.Context(), journal.Stdout, make([]byte, 2*journal.Capacity)); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int64]struct {
		at    int64
		bytes int
	}{
		2:                    {2, 10}, // of the beginning, which stays
		journal.Head - 2:     {journal.Head - 2, 2},
		journal.Head:         {journal.Capacity, 10},
		journal.Capacity - 1: {journal.Capacity, 10},
		journal.Capacity + 1: {journal.Capacity + 1, 10},
	} {
		ev, state := read(j, journal.Stdout, from, from, 10)
		if ev.Offset != want.at || len(ev.Data) != want.bytes || state != journal.Ready {
			t.Errorf("from %d: offset %d, %d bytes, %v", from, ev.Offset, len(ev.Data), state)
		}
	}
}

func TestReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(true)
		got := make(chan journal.Event, 1)
		go func() {
			ev, _ := j.Read(t.Context(), journal.Stdout, 0, 0, 10)
			got <- ev
		}()
		synctest.Wait()
		if err := j.Write(t.Context(), journal.Stdout, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if ev := <-got; string(ev.Data) != "x" {
			t.Errorf("%q", ev.Data)
		}
	})
}

// Without a release the writer is held back, whoever else follows and leaves;
// and one stream does not hold back the other.
func TestReleaseMakesRoom(t *testing.T) {
	j := journal.New(true)
	read(j, journal.Stdout, 0, 0, 1)
	fill := func(s journal.Stream, n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return j.Write(ctx, s, bytes.Repeat([]byte{'x'}, n))
	}
	if err := fill(journal.Stdout, journal.Capacity); err != nil {
		t.Fatal(err)
	}
	follower := j.Follow([2]int64{})
	for buf := make([]byte, 64<<10); ; {
		if _, state := follower.Next(buf); state != journal.Ready {
			break
		}
	}
	follower.Close()
	if err := fill(journal.Stdout, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what was not released: %v", err)
	}
	for range 3 {
		if err := fill(journal.Stderr, journal.Capacity/2); err != nil {
			t.Errorf("the other stream: %v", err)
		}
		n := j.Bytes(journal.Stderr)
		read(j, journal.Stderr, n, n, 1)
	}
	read(j, journal.Stdout, 100, 100, 1)
	if err := fill(journal.Stdout, 100); err != nil {
		t.Errorf("what was released: %v", err)
	}
	if err := fill(journal.Stdout, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond: %v", err)
	}
	read(j, journal.Stdout, 50, 50, 1) // is no way back
	if ev, _ := read(j, journal.Stdout, 100, 100, 1); ev.Offset != 100 {
		t.Errorf("what was kept begins at %d", ev.Offset)
	}
}

// What FollowAll has not read is kept after the end, however much others have; once it has
// left, or for another reader, it is not.
func TestBudgetPassesReadersOver(t *testing.T) {
	for _, all := range []bool{true, false} {
		b := journal.NewBudget(1 << 20)
		j := journal.New(false)
		f := j.Follow([2]int64{})
		if all {
			f.Close()
			f = j.FollowAll()
		}
		if err := j.Write(t.Context(), journal.Stdout, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		b.End(j)
		for range 3 {
			other := journal.New(false)
			if err := other.Write(t.Context(), journal.Stdout, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			b.End(other)
		}
		ev, state := f.Next(make([]byte, 10))
		if state != journal.Ready || (ev.Data != nil) != all {
			t.Errorf("FollowAll %v: %+v, %v", all, ev, state)
		}
		f.Close()
		last := journal.New(false)
		if err := last.Write(t.Context(), journal.Stdout, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		b.End(last)
		ev, _ = j.Read(t.Context(), journal.Stdout, 0, 0, 10)
		if ev.Data != nil {
			t.Errorf("FollowAll %v: after it there is still %+v", all, ev)
		}
	}
}
