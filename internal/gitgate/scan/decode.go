package scan

import (
	"bytes"
	"sort"
	"strings"
)

const (
	minBase64 = 20 // digits of the shortest run that is looked into
	minHex    = 32
)

// digits are the values of base64's digits, of both alphabets; 0xff: it is none.
var digits = func() (v [256]byte) {
	for i := range v {
		v[i] = 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		v[c] = byte(i)
	}
	v['-'], v['_'] = 62, 63
	return v
}()

// parts are texts that were found in one, one after the other, and where.
type parts struct {
	text []byte
	at   []int // of each part in text
	from []int // of each in the one that it was in
}

func (p *parts) begin(from int) {
	p.text = append(p.text, '\n')
	p.at, p.from = append(p.at, len(p.text)), append(p.from, from)
}

// place says where a byte of a part was.
func (p *parts) place(where place) place {
	return func(at int) int {
		i := max(0, sort.SearchInts(p.at, at+1)-1)
		return where(p.from[i])
	}
}

// encoded looks through what is in base64 or hexadecimal.
func (s *search) encoded(text []byte, by string, depth int, where place) {
	var in64, in16 parts
	var run []byte
	for at := 0; at < len(text); {
		if digits[text[at]] == 0xff {
			at++
			continue
		}
		from := at
		var hex bool
		run, hex, at = runOf(text, at, run[:0])
		if len(run) >= minBase64 && depth >= maxDepth {
			s.opaque = "it is encoded more often than can be looked at"
			return
		}
		if len(run) >= minBase64 {
			s.base64(&in64, run, from)
		}
		if hex && len(run) >= minHex {
			s.hex(&in16, run, from)
		}
		if s.budget < 0 {
			return
		}
	}
	s.text(in64.text, join(by, "base64"), depth+1, in64.place(where))
	s.text(in16.text, join(by, "hexadecimal"), depth+1, in16.place(where))
}

// minWrapped is how long a line of digits is that goes on in the next.
const minWrapped = 16

// between is what may stand between one line of digits and the next: ends of lines, and what quotes and comments
// begin and end them with.
const between = "\r\n \t\"'>#,\\"

// runOf returns the values of the digits of base64 from at on, also over several lines,
// whether all are hexadecimal, and what follows them.
func runOf(text []byte, at int, run []byte) (_ []byte, hex bool, next int) {
	hex = true
	line := 0
	for at < len(text) {
		c := text[at]
		if v := digits[c]; v != 0xff {
			run = append(run, v)
			hex = hex && strings.IndexByte("0123456789abcdefABCDEF", c) >= 0
			line++
			at++
			continue
		}
		to := at
		for to < len(text) && strings.IndexByte(between, text[to]) >= 0 {
			to++
		}
		if line < minWrapped || to == len(text) || digits[text[to]] == 0xff || bytes.IndexByte(text[at:to], '\n') < 0 {
			break
		}
		line, at = 0, to
	}
	return run, hex, at
}

// base64 decodes a run from each of its first four digits: what stands before it may be
// digits, too.
func (s *search) base64(p *parts, run []byte, from int) {
	for shift := range 4 {
		in := run[shift:]
		if !s.spend(len(in)) {
			return
		}
		p.begin(from)
		for ; len(in) >= 4; in = in[4:] {
			p.text = append(p.text, in[0]<<2|in[1]>>4, in[1]<<4|in[2]>>2, in[2]<<6|in[3])
		}
		if len(in) > 1 {
			p.text = append(p.text, in[0]<<2|in[1]>>4)
		}
		if len(in) > 2 {
			p.text = append(p.text, in[1]<<4|in[2]>>2)
		}
	}
}

// hex decodes a run of hexadecimal digits, which came as values of base64's.
func (s *search) hex(p *parts, run []byte, from int) {
	value := func(v byte) byte {
		switch {
		case v < 26: // A to F
			return v + 10
		case v < 52: // a to f
			return v - 26 + 10
		}
		return v - 52
	}
	for shift := range 2 {
		in := run[shift:]
		if !s.spend(len(in)) {
			return
		}
		p.begin(from)
		for ; len(in) >= 2; in = in[2:] {
			p.text = append(p.text, value(in[0])<<4|value(in[1]))
		}
	}
}
