package process

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// frame cuts data, in pieces of the sizes given, into what next finds.
func frame(data, sizes []byte, most int) (all []string) {
	f := framer{most: most}
	find := func(next func() ([]byte, found)) {
		for {
			line, what := next()
			if what == nothing {
				return
			}
			all = append(all, fmt.Sprintf("%d %q", what, line))
		}
	}
	for i := 0; len(data) > 0; i++ {
		n := len(data)
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)])+1)
		}
		if f.end() < f.off {
			panic("the end is before the beginning")
		}
		f.add(bytes.Clone(data[:n]))
		data = data[n:]
		find(f.next)
		if len(f.buf) > most+256 {
			panic("it holds more than a line")
		}
	}
	find(f.rest)
	return append(all, fmt.Sprint(f.off, f.end()))
}

// whole is what frame is to find, by the book.
func whole(data []byte, most int) (all []string) {
	total := len(data)
	for len(data) > 0 {
		line, rest, newline := bytes.Cut(data, []byte{'\n'})
		data = rest
		switch {
		case len(line) > most:
			all = append(all, fmt.Sprintf("%d %q", tooLong, ""))
		case newline || len(line) > 0:
			all = append(all, fmt.Sprintf("%d %q", oneLine, line))
		}
	}
	return append(all, fmt.Sprint(total, total))
}

func FuzzFramer(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nfour"), []byte{0, 1, 2})
	f.Add([]byte("0123456789abcdef0123456789\nx\n"), []byte{3})
	f.Add([]byte("0123456789abcdef\n0123456789abcdef0\n\r\n"), []byte{})
	f.Add([]byte("0123456789abcdef0"), []byte{0})
	f.Fuzz(func(t *testing.T, data, sizes []byte) {
		got, want := frame(data, sizes, 16), whole(data, 16)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in pieces of %v:\n%q\nwant\n%q", sizes, got, want)
		}
	})
}

func FuzzLedger(f *testing.F) {
	f.Add(int64(1), int64(0), int64(0), int64(0), true)
	f.Add(int64(5), int64(300), int64(7), int64(9), false)
	f.Fuzz(func(t *testing.T, out, spooled, start, end int64, skip bool) {
		l, _, known, err := openLedger(filepath.Join(t.TempDir(), "l"))
		if err != nil || known {
			t.Fatal(known, err)
		}
		defer l.close()
		want := position{out: out, spooled: spooled, inStart: start, inEnd: end, skip: skip}
		if err := l.write(want); err != nil {
			t.Fatal(err)
		}
		if got, ok := l.read(); ok && got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func BenchmarkLines(b *testing.B) {
	data := bytes.Repeat([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"some words"}]}}`+"\n"), 3000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		f := framer{most: MaxLine}
		f.add(data)
		for {
			if _, what := f.next(); what == nothing {
				break
			}
		}
	}
}

// A line stays what it was while others come in its room.
func TestLinesStay(t *testing.T) {
	f := framer{most: MaxLine}
	var got, want []string
	var lines [][]byte
	for i, n := range []int{keepBuffer + 5, 10, keepBuffer, 3, 2*keepBuffer + 1, keepBuffer - 1, 7, 7} {
		line := strings.Repeat(string(rune('a'+i)), n)
		want = append(want, line)
		for data := []byte(line + "\n"); len(data) > 0; {
			k := min(len(data), 100_000)
			f.add(data[:k])
			data = data[k:]
		}
		f.add([]byte("rest")) // which the next line begins with
		for {
			line, what := f.next()
			if what == nothing {
				break
			}
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		got = append(got, strings.TrimPrefix(string(line), "rest"))
		if i < len(want) && got[i] != want[i] {
			t.Errorf("line %d of %d bytes has become another", i, len(want[i]))
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d lines, want %d", len(got), len(want))
	}
}

// BenchmarkPieces is of lines that come in pieces as a guest sends them.
func BenchmarkPieces(b *testing.B) {
	data := bytes.Repeat(append(bytes.Repeat([]byte("x"), 4000), '\n'), MaxRead/4001+1)[:MaxRead]
	b.SetBytes(MaxRead)
	f := framer{most: MaxLine}
	for b.Loop() {
		f.add(data)
		for {
			if _, what := f.next(); what == nothing {
				break
			}
		}
	}
}
