package action_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// written is what a shell wrote, without a shell.
type written struct{ *journal.Journal }

func (w written) Output(ctx context.Context, s journal.Stream, from int64, size int) (journal.Event, journal.State) {
	return w.Read(ctx, s, from, from, size)
}

// A read of what a shell wrote is what a model says that has all of it at hand, but for what
// was dropped, wherever the cursor is and however the writes were cut.
func FuzzShellRead(f *testing.F) {
	for _, s := range readSeeds {
		f.Add([]byte(s), uint32(0), 3, uint16(2), uint32(1), true)
		f.Add([]byte(s), uint32(journal.Capacity+77), 3, uint16(50), uint32(3), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, fill uint32, piece int, limit uint16, cursor uint32, ended bool) {
		if len(raw) > 4096 {
			return
		}
		whole := append(bytes.Repeat([]byte("\xc3\xa4\n"), int(fill%(2*journal.Capacity))/3), raw...)
		j := journal.NewLasting(time.Second) // a terminal has one
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), max(1, piece), 100_000)
			if len(rest) > 8192 {
				n = min(len(rest), 100_000)
			}
			if err := j.Write(t.Context(), journal.Stdout, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if ended {
			j.Settle(journal.Stdout)
		}
		q := &action.ReadShellRequest{Cursor: int64(cursor) % int64(len(whole)+1), MaxChars: int(limit) + 1}
		if err := checkReply(server.ReadFrom(written{j}, q), q, whole, ended); err != nil {
			t.Fatal(err)
		}
	})
}

// checkReply says where a reply is not the model's.
func checkReply(got *action.ReadShellReply, q *action.ReadShellRequest, whole []byte, ended bool) error {
	start := max(q.Cursor, int64(len(whole)-journal.Capacity))
	text, used := model(whole[start:], q.MaxChars, ended)
	rest := len(whole) - int(start) - used
	want := action.ReadShellReply{
		Cursor: start, NextCursor: start + int64(used), Output: text,
		Truncated: start > q.Cursor || rest > 0 && utf8.RuneCountInString(text) == q.MaxChars,
	}
	if *got != want {
		return fmt.Errorf("of %d bytes from %d, at most %d characters, ended %v: cursor %d, next %d, truncated %v, %d bytes; want %d, %d, %v, %d",
			len(whole), q.Cursor, q.MaxChars, ended, got.Cursor, got.NextCursor, got.Truncated, len(got.Output),
			want.Cursor, want.NextCursor, want.Truncated, len(want.Output))
	}
	return nil
}
