package inject

import (
	"slices"
	"unicode/utf8"
)

// outcome is what a search has come to.
type outcome int

const (
	clean    outcome = iota
	found            // a text was complete
	garbled          // what is searched is not what it says it is
	overlong         // more than may be read
	nearly           // what ended had the most of a text
)

// scanner searches a stream.
type scanner interface {
	// feed takes the next bytes.
	feed(b []byte) outcome
	// held is how many of the last bytes fed may belong to a text that is not
	// complete yet, and must not be passed on.
	held() int
	// end is what a stream that ends here, in good order, has come to: found
	// where its end completes a text, nearly where the most of one has come,
	// garbled where nothing may end. Nothing may be fed after it.
	end() outcome
}

// searcher searches a stream as it is, and with its escapes read. What may be
// quoted-printable or may not is read both ways.
type searcher struct {
	m      *matcher
	raw    int32 // the state of the search of the stream as it is
	plain  view
	quoted view // where =41 stands for A; empty where it would be as plain is
	// wait is the beginning of an escape.
	wait []byte
}

// view is the search of a stream in one reading.
type view struct {
	state int32
	gap   int // how many of the last bytes stood for nothing
	at    offsets
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
	h = max(h, s.span(&s.plain, s.m.nodes[s.plain.state].hold))
	return max(h, s.span(&s.quoted, s.m.nodes[s.quoted.state].hold))
}

// span is how many of the last bytes the last n of a view came from.
func (s *searcher) span(v *view, n int32) int {
	if n == 0 {
		return 0
	}
	return v.at.since(int(n)) + len(s.wait)
}

// end implements scanner. Where the rest of a text is missing, it may be
// guessed, or be in another answer.
func (s *searcher) end() outcome {
	if len(s.wait) > 0 {
		s.wait = append(s.wait, '.') // which is of no escape
		if s.settle() {
			return found
		}
	}
	if s.m.nodes[s.raw].most || s.m.nodes[s.plain.state].most || s.m.nodes[s.quoted.state].most {
		return nearly
	}
	return clean
}

// back is how many of the last bytes may come to be held.
func (s *searcher) back() int {
	b := int(s.m.nodes[s.raw].depth)
	b = max(b, s.span(&s.plain, s.m.nodes[s.plain.state].depth))
	return max(b, s.span(&s.quoted, s.m.nodes[s.quoted.state].depth))
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
			if s.run(b[i:j]) {
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
		n, hit := s.escape(b[i:])
		if hit {
			return true
		}
		if n == 0 {
			s.wait = append(s.wait[:0], b[i:]...)
			return false
		}
		i += n
	}
	return false
}

// plainLength is how many bytes of b come before the first special one.
func plainLength(b []byte) int {
	// Most runs are short; in the others eight are looked at in one step.
	for i, c := range b[:min(len(b), 32)] {
		if special[c] != 0 {
			return i
		}
	}
	return min(len(b), 32) + longRun(b[min(len(b), 32):])
}

func longRun(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		c := b[i : i+8 : i+8]
		if special[c[0]]|special[c[1]]|special[c[2]]|special[c[3]]|special[c[4]]|special[c[5]]|special[c[6]]|special[c[7]] != 0 {
			break
		}
	}
	for i < len(b) && special[b[i]] == 0 {
		i++
	}
	return i
}

// settle reads what is in wait as far as it can be read.
func (s *searcher) settle() (hit bool) {
	for len(s.wait) > 0 {
		n := 1
		if special[s.wait[0]] == 0 {
			hit = s.run(s.wait[:1])
		} else if n, hit = s.escape(s.wait); n == 0 {
			return false
		}
		if hit {
			return true
		}
		s.wait = s.wait[:copy(s.wait, s.wait[n:])]
	}
	return false
}

// escape searches what the escape stands for that b begins with, and returns
// its length: 0 where more of b must be seen.
func (s *searcher) escape(b []byte) (n int, hit bool) {
	var room [utf8.UTFMax]byte
	if b[0] == '=' && len(b) > 1 && !isHex(b[1]) && !dropped[b[1]] {
		return 1, s.take(b[:1], 1) // of a query or a mark-up
	}
	stands, n := escape(b, room[:0])
	if n == 1 && b[0] == '=' && len(b) > 2 && isHex(b[1]) && isHex(b[2]) {
		return 3, s.fork(b[:3])
	}
	return n, n > 0 && s.take(stands, n)
}

// fork searches "=41" both as it is and as what it stands for in
// quoted-printable text, such as a query's value is not.
func (s *searcher) fork(b []byte) bool {
	stands := []byte{unhex(b[1])<<4 | unhex(b[2])}
	if dropped[stands[0]] {
		stands = nil
	}
	v := s.quoted
	if v.state == 0 {
		v = s.plain
		if stands != nil && s.m.step(v.state, stands[0]) == 0 {
			v.state = 0
		} else {
			v.at.marks = slices.Clone(v.at.marks)
		}
	}
	hit := s.plain.run(s.m, b)
	hit = v.take(s.m, stands, len(b)) || hit
	s.quoted = v
	return hit
}

// run searches what stands for itself.
func (s *searcher) run(b []byte) bool {
	if s.quoted.state == 0 {
		return s.plain.run(s.m, b)
	}
	hit := s.plain.run(s.m, b)
	return s.quoted.run(s.m, b) || hit
}

// take searches what n bytes stand for.
func (s *searcher) take(stands []byte, n int) bool {
	if s.plain.state|s.quoted.state == 0 && (len(stands) == 0 || len(stands) == 1 && s.m.root[stands[0]] == 0) {
		return false // nothing has begun, and nothing begins
	}
	hit := s.plain.take(s.m, stands, n)
	return s.quoted.state != 0 && s.quoted.take(s.m, stands, n) || hit
}

func (v *view) run(m *matcher, b []byte) (hit bool) {
	v.gap = 0
	if v.state, hit = m.scan(v.state, b); v.state == 0 {
		v.at.forget()
		return hit
	}
	v.at.run(len(b), int(m.nodes[v.state].depth))
	return hit
}

// maxGap is how many bytes that stand for nothing may lie within a text.
// Without a bound they would have to be held for as long as they come.
const maxGap = 64

func (v *view) take(m *matcher, stands []byte, n int) (hit bool) {
	if len(stands) > 0 {
		v.state, hit = m.scan(v.state, stands)
		v.gap = 0
	} else if v.gap += n; v.gap > maxGap {
		v.state = 0
	}
	if v.state == 0 {
		v.at.forget()
		return hit
	}
	v.at.jump(len(stands), n, int(m.nodes[v.state].depth))
	return hit
}
