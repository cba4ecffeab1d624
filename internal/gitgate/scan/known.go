package scan

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
)

// Known is a secret that is known by its value, and the name by which it may be told.
type Known struct {
	Name  string
	Value []byte
}

// minKnown is how many bytes a value has at least that is searched for: shorter ones stand anywhere.
const minKnown = 8

// needle is a form of a known secret.
type needle struct {
	rule, by string
	text     []byte
}

// With returns the rules, and what is known besides, which no policy of theirs excuses. It keeps copies
// of the values, until Forget.
func (r *Rules) With(all []Known) *Rules {
	out := *r
	out.known = nil
	for _, k := range all {
		if len(k.Value) < minKnown {
			continue
		}
		rule := "of this sandbox: " + k.Name
		add := func(by string, text []byte) { out.known = append(out.known, needle{rule, by, text}) }
		add("", bytes.Clone(k.Value))
		// Runs of digits that are too short to be decoded have short values, too.
		digits := hex.AppendEncode(nil, k.Value)
		add("hexadecimal", digits)
		add("hexadecimal", bytes.ToUpper(digits))
		for shift := range 3 {
			for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				add("base64", within(alphabet, k.Value, shift))
			}
		}
	}
	return &out
}

// Forget overwrites what With has copied.
func (r *Rules) Forget() {
	for _, n := range r.known {
		clear(n.text)
	}
	r.known = nil
}

// within is a value in base64 as it is behind so many other bytes: the digits that it shares with what is before or
// after it are not of it.
func within(alphabet *base64.Encoding, value []byte, shift int) []byte {
	padded := append(make([]byte, shift), value...)
	text := alphabet.AppendEncode(nil, padded)
	from := (shift*8 + 5) / 6
	to := len(padded) * 8 / 6
	return text[from:to]
}

// match has rules, and what is known, looked for in a text.
func (s *search) match(text []byte, by string, where place) {
	for _, n := range s.rules.known {
		at := bytes.Index(text, n.text)
		if at < 0 || len(s.hits) >= maxHits || s.seen[n.rule] {
			continue
		}
		s.seen[n.rule] = true
		h := Hit{Rule: n.rule, Why: "a secret that this sandbox may use", Line: where(at), By: by, Secret: bytes.Clone(n.text)}
		if n.by != "" {
			h.By = join(by, n.by)
		}
		s.hits = append(s.hits, h)
	}
	s.patterns(text, by, where)
}
