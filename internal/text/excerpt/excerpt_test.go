package excerpt_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

func TestKeeper(t *testing.T) {
	for _, tt := range []struct {
		name       string
		head, tail int
		pieces     []string // "<n": n bytes that are lost
		want       string
		leftOut    int64
	}{
		{"nothing", 4, 4, nil, "", 0},
		{"head", 4, 4, []string{"ab", "cd"}, "abcd", 0},
		{"both", 4, 4, []string{"abcde", "fgh"}, "abcdefgh", 0},
		{"one-more", 4, 4, []string{"abcdefghi"}, "abcd" + excerpt.Note(1) + "fghi", 1},
		{"byte-by-byte", 2, 3, strings.Split("abcdefghijklmnop", ""), "ab" + excerpt.Note(11) + "nop", 11},
		{"no-tail", 2, 0, []string{"abc", "d"}, "ab" + excerpt.Note(2), 2},
		{"no-head", 0, 2, []string{"abc", "d"}, excerpt.Note(2) + "cd", 2},
		{"lost", 8, 8, []string{"ab", "<", "cd"}, "ab" + excerpt.Note(10) + "cd", 10},
		{"lost-behind", 2, 8, []string{"abcdef", "<", "gh"}, "ab" + excerpt.Note(14) + "gh", 14},
		{"characters", 2, 3, []string{"aäoäöü"}, "a" + excerpt.Note(7) + "ü", 7},
		{"no-text", 2, 3, []string{"\xff\xff\xff\xff\xff\xff\xff"}, "\xff\xff" + excerpt.Note(2) + "\xff\xff\xff", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := excerpt.New(tt.head, tt.tail)
			all := int64(0)
			for _, p := range tt.pieces {
				if p == "<" {
					k.Skip(10)
					all += 10
					continue
				}
				if n, err := k.Write([]byte(p)); n != len(p) || err != nil {
					t.Errorf("Write = %d, %v", n, err)
				}
				all += int64(len(p))
			}
			got, leftOut := k.Excerpt().Whole()
			if string(got) != tt.want || leftOut != tt.leftOut {
				t.Errorf("%q, %d left out; want %q, %d", got, leftOut, tt.want, tt.leftOut)
			}
			if k.All() != all || k.Excerpt().All() != all {
				t.Errorf("%d and %d bytes, want %d", k.All(), k.Excerpt().All(), all)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		limit      int
		want       string
		cut        bool
	}{
		{"fits", "abc", 3, "abc", false},
		{"ends", strings.Repeat("a", 60) + strings.Repeat("b", 60), 60, strings.Repeat("a", 16) + excerpt.Note(92) + strings.Repeat("b", 12), true},
		{"characters", strings.Repeat("é", 60), 60, strings.Repeat("é", 8) + excerpt.Note(92) + strings.Repeat("é", 6), true},
		{"no-room", strings.Repeat("é", 60), 5, "éé", true},
		{"nothing", "abc", 0, "", true},
		{"less-than-nothing", "abc", -1, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, cut := excerpt.Cut(tt.text, tt.limit)
			if got != tt.want || cut != tt.cut || len(got) > max(tt.limit, 0) && cut {
				t.Errorf("%q, %v; want %q", got, cut, tt.want)
			}
		})
	}
}

// Whatever the pieces, the ends are those of all, the count is right, and the memory bounded.
func FuzzKeeper(f *testing.F) {
	f.Add([]byte("a longer text than is kept"), uint8(3), uint8(4), uint8(5))
	f.Fuzz(func(t *testing.T, text []byte, head, tail, piece uint8) {
		k := excerpt.New(int(head), int(tail))
		for rest := text; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			_, _ = k.Write(rest[:n])
			rest = rest[n:]
		}
		e := k.Excerpt()
		if len(e.Head) > int(head) || len(e.Tail) > int(tail) || cap(e.Tail) > 8*(int(tail)+int(piece)+1) {
			t.Fatalf("%d and %d bytes are kept of %d", len(e.Head), len(e.Tail), len(text))
		}
		if !bytes.HasPrefix(text, e.Head) || !bytes.HasSuffix(text, e.Tail) || e.All() != int64(len(text)) {
			t.Fatalf("%q: %+v", text, e)
		}
		got, leftOut := e.Whole()
		if utf8.Valid(text) && !utf8.Valid(got) || leftOut == 0 && !bytes.Equal(got, text) {
			t.Fatalf("%q: %q, %d left out", text, got, leftOut)
		}
	})
}
