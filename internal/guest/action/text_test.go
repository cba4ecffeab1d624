package action_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	server "github.com/carboy-sandbox/carboy/internal/guest/action"
)

func TestPlain(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"text", "hello\nthere", "hello\nthere"},
		{"colours", "\x1b[1;31mred\x1b[0m", "red"},
		{"private", "\x1b[?2004h$ \x1b[?2004l", "$ "},
		{"title-bel", "\x1b]0;title\x07$ ", "$ "},
		{"title-st", "\x1b]0;title\x1b\\$ ", "$ "},
		{"title-c1", "\u009d0;title\u009c$ ", "$ "},
		{"dcs", "a\x1bP1$r0m\x1b\\b", "ab"},
		{"apc-pm-sos", "a\x1b_x\x1b\\\x1b^y\x1b\\\x1bXz\x1b\\b", "ab"},
		{"string-cancelled", "\x1b]0;title\x18text", "text"},
		{"string-by-another", "\x1b]0;title\x1b[1mtext", "text"},
		{"charset", "\x1b(B\x1b)0text", "text"},
		{"single", "\x1b7\x1b8\x1bM\x1b=text", "text"},
		{"escape-twice", "\x1b\x1b[1mtext", "text"},
		{"c1-csi", "\u009b1mtext", "text"},
		{"c1-alone", "a\u0085b", "ab"},
		{"csi-broken-by-text", "\x1b[1\u00e4", "\u00e4"},
		{"csi-broken-by-line", "\x1b[1\nm", "\nm"},
		{"bell-and-nul", "a\x07\x00\x7fb\vc", "abc"},
		{"tab", "a\tb", "a\tb"},
		{"crlf", "a\r\nb\r\n", "a\nb\n"},
		{"cr", "10%\r20%\r100%\n", "100%\n"},
		{"cr-shorter", "long line\rab\n", "abng line\n"},
		{"cr-erase", "long line\r\x1b[Kab\n", "ab\n"},
		{"backspace", "abc\b\bX\n", "aXc\n"},
		{"backspace-erase", "abc\b \b\n", "ab \n"},
		{"backspace-el", "abc\b\x1b[K\n", "ab\n"},
		{"backspace-at-start", "\b\b\bab", "ab"},
		{"erase-before", "abc\x1b[1D\x1b[1Kd\n", "  d\n"},
		{"erase-line", "abc\x1b[2Kd\n", "   d\n"},
		{"left-right", "abcd\x1b[3Dx\x1b[Cy\n", "axcy\n"},
		{"column", "abc\x1b[2Gx\n", "axc\n"},
		{"delete", "abcd\r\x1b[2Px\n", "xd\n"},
		{"right-of-the-end", "a\x1b[3Cb\n", "a   b\n"},
		{"far-right", "\x1b[999999999Ca\n", strings.Repeat(" ", 4096) + "a\n"},
		{"huge-number", "\x1b[99999999999999999999Ca\n", "a\n"},
		{"wide", "\u4e16\u754c\rx\n", "x\u754c\n"},
		{"no-utf8", "a\xff\xc0b", "a\uFFFD\uFFFDb"},
		{"readline", "$ lx\b\x1b[Ks\r\nfile\r\n$ ", "$ ls\nfile\n$ "},
		{"long-sequence", "\x1b]" + strings.Repeat("x", server.MaxSequence) + "yz", "xxyz"},
		{"end-of-csi", "text\x1b[3", "text"},
		{"end-of-title", "text\x1b]0;ti", "text"},
		{"end-of-escape", "text\x1b", "text"},
		{"end-of-character", "text\xe2\x82", "text\uFFFD\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, used, full := server.Plain([]byte(tt.raw), 1<<20, true)
			if got != tt.want || used != len(tt.raw) || full {
				t.Errorf("got %q of %d bytes, %v; want %q of %d", got, used, full, tt.want, len(tt.raw))
			}
		})
	}
}

// What is not whole stays for the next read.
func TestPlainLeaves(t *testing.T) {
	for raw, want := range map[string]int{
		"text\x1b": 4, "text\x1b[3": 4, "text\x1b]0;title": 4, "text\x1b]0;title\x1b": 4, "text\xe2\x82": 4, "text\xc2": 4, "text\x1b(": 4,
		"text\x1b[3m": 8, "text\x1b]" + strings.Repeat("x", server.MaxSequence-3): 4, "text\x1b]" + strings.Repeat("x", server.MaxSequence-2): 4 + server.MaxSequence,
	} {
		if got, used, full := server.Plain([]byte(raw), 100, false); got != "text" || used != want || full {
			t.Errorf("%.40q: %q of %d bytes, %v; want %d", raw, got, used, full, want)
		}
	}
}

func TestPlainIsBounded(t *testing.T) {
	for _, tt := range []struct {
		raw   string
		limit int
		want  string
		used  int
	}{
		{"abc", 3, "abc", 3},
		{"abcd", 3, "abc", 3},
		{"abc\n", 3, "abc", 3},
		{"ab\n\n", 3, "ab\n", 3},
		{"ab\rcdef", 2, "cd", 5},
		{"\x1b[1mab\x1b[0mc", 2, "ab", 10},
		{"\x1b[50Cx", 5, "     ", 5},
		{"äöü", 2, "äö", 4},
	} {
		got, used, full := server.Plain([]byte(tt.raw), tt.limit, true)
		if got != tt.want || used != tt.used || full != (used < len(tt.raw)) {
			t.Errorf("%q: %q of %d, %v; want %q of %d", tt.raw, got, used, full, tt.want, tt.used)
		}
	}
}

var plainSeeds = []string{
	"hello\n", "\x1b[1;31mred\x1b[0m\r\n", "\x1b]0;title\x07$ ", "10%\r20%\n", "abc\b\x1b[K", "\x1b[9999C", "\u009b1m", "\xe2\x82", "\x1b", "\x1bP\x1b\\", "a\x1b[2K\x1b[1K\x1b[P",
}

// reader makes text of what a shell wrote: Plain, Decode, or one that has a bug.
type reader = func(raw []byte, limit int, final bool) (text string, used int, full bool)

func FuzzPlain(f *testing.F) {
	for _, s := range plainSeeds {
		f.Add([]byte(s), 10, 3)
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit, cut int) {
		if err := checkPlain(server.Plain, raw, limit, cut); err != nil {
			t.Fatal(err)
		}
	})
}

// checkPlain says what is wrong with plain text: read with a bound, and in two pieces.
func checkPlain(plain reader, raw []byte, limit, cut int) error {
	limit = min(max(limit, 1), 1<<16)
	text, used, full := plain(raw, limit, true)
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > limit || used < 0 || used > len(raw) || full != (used < len(raw)) || full && used == 0 {
		return fmt.Errorf("%q of %d bytes of %d, %v", text, used, len(raw), full)
	}
	for _, r := range text {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
			return fmt.Errorf("%q has %q", text, r)
		}
	}
	// Without movements in a line, pieces are the same.
	if bytes.ContainsAny(raw, "\r\b") || bytes.Contains(raw, []byte("\x1b[")) || bytes.Contains(raw, []byte("\xc2\x9b")) {
		return nil
	}
	whole, _, _ := plain(raw, 1<<20, true)
	cut = min(max(cut, 0), len(raw))
	first, used, full := plain(raw[:cut], 1<<20, false)
	second, _, _ := plain(raw[used:], 1<<20, true)
	if full || first+second != whole {
		return fmt.Errorf("%q cut at %d is %q and %q, not %q", raw, cut, first, second, whole)
	}
	return nil
}

// model makes text as a reader with all of it at hand would: character by character.
func model(raw []byte, limit int, final bool) (text string, used int) {
	var b strings.Builder
	for n := 0; n < limit && used < len(raw); n++ {
		r, size := utf8.DecodeRune(raw[used:])
		if r == utf8.RuneError && size == 1 && !final && !utf8.FullRune(raw[used:]) {
			break
		}
		b.WriteRune(r)
		used += size
	}
	return b.String(), used
}

var readSeeds = []string{"hello", "h\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xff\xfe", "a\xc3", "\xf0\x9f\x98", "\xed\xa0\x80x", ""}

func FuzzShellText(f *testing.F) {
	for _, s := range readSeeds {
		f.Add([]byte(s), 2, 1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit, piece int) {
		if err := checkRead(server.Decode, raw[:min(len(raw), 4096)], limit, piece); err != nil {
			t.Fatal(err)
		}
	})
}

// checkRead says what is wrong with text that is read as it comes.
func checkRead(decode reader, raw []byte, limit, piece int) error {
	limit, piece = min(max(limit, 1), 100), min(max(piece, 1), 50)
	for _, final := range []bool{false, true} {
		text, used, full := decode(raw, limit, final)
		if want, n := model(raw, limit, final); text != want || used != n || full && used == len(raw) {
			return fmt.Errorf("%q: %q of %d, %v; want %q of %d", raw, text, used, full, want, n)
		}
	}
	// Who reads as it comes, with any bound, gets all of it once.
	whole, _ := model(raw, len(raw), true)
	var all strings.Builder
	cursor, came := 0, 0
	for cursor < len(raw) {
		came = min(came+piece, len(raw))
		text, used, _ := decode(raw[cursor:came], limit, came == len(raw))
		if used == 0 && came == len(raw) {
			return fmt.Errorf("%q: nothing is read from %d on", raw, cursor)
		}
		all.WriteString(text)
		cursor += used
	}
	if all.String() != whole {
		return fmt.Errorf("in pieces %q, as a whole %q", all.String(), whole)
	}
	return nil
}

// The checks of both find bugs such as these by their seeds, or by some inputs more.
func TestChecksFindBugs(t *testing.T) {
	for name, bug := range map[string]struct {
		read  reader
		check func(reader, []byte, int, int) error
		seeds []string
	}{
		"plain-drops-what-is-cut": {func(raw []byte, limit int, _ bool) (string, int, bool) { return server.Plain(raw, limit, true) }, checkPlain, plainSeeds},
		"plain-shows-escapes":     {server.Decode, checkPlain, plainSeeds},
		"plain-counts-bytes": {func(raw []byte, limit int, final bool) (string, int, bool) {
			text, _, full := server.Plain(raw, limit, final)
			return text, len(text), full
		}, checkPlain, plainSeeds},
		"read-replaces-what-is-cut": {func(raw []byte, limit int, _ bool) (string, int, bool) { return server.Decode(raw, limit, true) }, checkRead, readSeeds},
		"read-counts-bytes": {func(raw []byte, limit int, final bool) (string, int, bool) {
			return server.Decode(raw[:min(limit, len(raw))], limit, final)
		}, checkRead, readSeeds},
		"cursor-from-length": {func(raw []byte, limit int, final bool) (string, int, bool) {
			text, _, full := server.Decode(raw, limit, final)
			return text, min(utf8.RuneCountInString(text), len(raw)), full
		}, checkRead, readSeeds},
	} {
		found := false
		for _, seed := range bug.seeds {
			for i := range 3 * (len(seed) + 1) {
				found = found || bug.check(bug.read, []byte(seed), 1+i%3*4, i/3) != nil
			}
		}
		if !found {
			t.Errorf("%s is not found", name)
		}
	}
}

// What fits is what JSON takes, at most.
func TestFit(t *testing.T) {
	for _, raw := range []string{"hello", "\x00\x01\x1f", "\"\\\n\r\t\b\f", "\u2028\u2029\u2030", "ä€😀", "a\xff\xc3", "<&>", "\x7f"} {
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(false)
		valid := strings.ToValidUTF8(string([]rune(raw)), "\uFFFD")
		if err := e.Encode(valid); err != nil {
			t.Fatal(err)
		}
		need := buf.Len() - 3 // quotes and the line's end
		if text, used := server.Fit([]byte(raw), need); text != valid || used != len(raw) {
			t.Errorf("%q: %q of %d bytes fits into %d", raw, text, used, need)
		}
		if text, used := server.Fit([]byte(raw), need-1); used >= len(raw) || !strings.HasPrefix(valid, text) {
			t.Errorf("%q: %q of %d bytes fits into %d", raw, text, used, need-1)
		}
	}
}

func TestTail(t *testing.T) {
	log := server.NewRecord()
	log.Add([]byte("one\ntwo\nthree\n"))
	for lines, want := range map[int]string{0: "one\ntwo\nthree\n", 1: "three\n", 2: "two\nthree\n", 3: "one\ntwo\nthree\n", 100: "one\ntwo\nthree\n"} {
		if got, more := log.Last(lines); got != want || more != (lines > 0 && lines < 3) {
			t.Errorf("the last %d: %q, %v", lines, got, more)
		}
	}
	log.Add([]byte("rest"))
	if got, more := log.Last(2); got != "three\nrest" || !more {
		t.Errorf("the last 2: %q, %v", got, more)
	}
	for i := range 40_000 {
		log.Add(fmt.Appendf(nil, "line %d\n", i))
	}
	if got, more := log.Last(0); len(got) < server.MaxLog || !more || !strings.HasPrefix(got, "one\n") || !strings.HasSuffix(got, "line 39999\n") {
		t.Errorf("%d bytes are kept, %v", len(got), more)
	}
	if got, more := log.Last(1); got != "line 39999\n" || !more {
		t.Errorf("the last line is %q, %v", got, more)
	}
}
