package inject

import "unicode/utf8"

// outcome is what a search has come to.
type outcome int

const (
	clean    outcome = iota
	found            // a text was complete
	garbled          // what is searched is not what it says it is
	overlong         // more than may be read
)

// scanner searches a stream.
type scanner interface {
	// feed takes the next bytes.
	feed(b []byte) outcome
	// held is how many of the last bytes fed may belong to a text that is not
	// complete yet, and must not be passed on.
	held() int
	// end is what a stream that ends here, in good order, has come to: found
	// where the most of a text has come, garbled where nothing may end.
	end() outcome
}

// searcher searches a stream twice: as it is, and with its escapes read.
type searcher struct {
	m     *matcher
	raw   int32 // the state of the search of the stream as it is
	plain int32 // of the other one
	// wait is the beginning of an escape.
	wait []byte
	gap  int // how many of the last bytes stood for nothing
	at   offsets
}

func newSearcher(m *matcher) *searcher { return &searcher{m: m} }

// feed implements scanner.
func (s *searcher) feed(b []byte) outcome {
	var hit bool
	if s.raw, hit = s.m.scan(s.raw, b); hit || s.unescape(b) {
		return found
	}
	return clean
}

// held implements scanner.
func (s *searcher) held() int {
	h := int(s.m.nodes[s.raw].hold)
	if p := s.m.nodes[s.plain].hold; p > 0 {
		h = max(h, s.at.since(int(p))+len(s.wait))
	}
	return h
}

// end implements scanner. Where the rest of a text is missing, it may be
// guessed, or be in another answer.
func (s *searcher) end() outcome {
	if s.m.nodes[s.raw].most || s.m.nodes[s.plain].most {
		return found
	}
	return clean
}

// back is how many of the last bytes may come to be held.
func (s *searcher) back() int {
	b := int(s.m.nodes[s.raw].depth)
	if p := s.m.nodes[s.plain].depth; p > 0 {
		b = max(b, s.at.since(int(p))+len(s.wait))
	}
	return b
}

// unescape searches b with its escapes read, and reports a hit.
func (s *searcher) unescape(b []byte) bool {
	for len(s.wait) > 0 && len(b) > 0 {
		// The escape that is waited for, and one more byte of it.
		s.wait = append(s.wait, b[0])
		b = b[1:]
		if s.settle() {
			return true
		}
	}
	for i := 0; i < len(b); {
		j := i + plainLength(b[i:])
		if j > i {
			if s.plainRun(b[i:j]) {
				return true
			}
			i = j
			continue
		}
		for j < len(b) && dropped[b[j]] {
			j++
		}
		if j > i {
			s.take(nil, j-i)
			i = j
			continue
		}
		var room [utf8.UTFMax]byte
		stands, n := escape(b[i:], room[:0])
		if n == 0 {
			s.wait = append(s.wait[:0], b[i:]...)
			return false
		}
		if s.take(stands, n) {
			return true
		}
		i += n
	}
	return false
}

// plainLength is how many bytes of b come before the first special one.
func plainLength(b []byte) int {
	for i, c := range b {
		if special[c] {
			return i
		}
	}
	return len(b)
}

// plainRun searches what stands for itself.
func (s *searcher) plainRun(b []byte) (hit bool) {
	s.gap = 0
	if s.plain, hit = s.m.scan(s.plain, b); s.plain == 0 {
		s.at.forget()
		return hit
	}
	s.at.run(len(b), int(s.m.nodes[s.plain].depth))
	return hit
}

// settle reads what is in wait as far as it can be read.
func (s *searcher) settle() bool {
	for len(s.wait) > 0 {
		stands, n := s.wait[:1], 1
		if special[s.wait[0]] {
			var room [utf8.UTFMax]byte
			if stands, n = escape(s.wait, room[:0]); n == 0 {
				return false
			}
		}
		if s.take(stands, n) {
			return true
		}
		s.wait = s.wait[:copy(s.wait, s.wait[n:])]
	}
	return false
}

// maxGap is how many bytes that stand for nothing may lie within a text.
// Without a bound they would have to be held for as long as they come.
const maxGap = 64

// take searches what n bytes stand for.
func (s *searcher) take(stands []byte, n int) (hit bool) {
	if len(stands) > 0 {
		s.plain, hit = s.m.scan(s.plain, stands)
		s.gap = 0
	} else if s.gap += n; s.gap > maxGap {
		s.plain = 0
	}
	if s.plain == 0 {
		s.at.forget()
		return hit
	}
	s.at.jump(len(stands), n, int(s.m.nodes[s.plain].depth))
	return hit
}
