package scan

import "bytes"

// Known is a secret that is known by its value, and the name by which it may be told.
type Known struct {
	Name  string
	Value []byte
	// Find says where in a text the value is, in whatever spelling; -1: nowhere.
	Find func(text []byte) int
}

// With returns the rules, and what is known besides, which no policy of theirs excuses. It keeps copies
// of the values, until Forget.
func (r *Rules) With(all []Known) *Rules {
	out := *r
	out.known = nil
	for _, k := range all {
		k.Value = bytes.Clone(k.Value)
		out.known = append(out.known, k)
	}
	return &out
}

// Forget overwrites the values that With has copied, and looks for them no more.
func (r *Rules) Forget() {
	for _, k := range r.known {
		clear(k.Value)
	}
	r.known = nil
}

// match has rules, and what is known, looked for in a text.
func (s *search) match(text []byte, by string, where place) {
	for _, k := range s.rules.known {
		rule := "of this sandbox: " + k.Name
		if len(s.hits) >= maxHits || s.seen[rule] {
			continue
		}
		at := k.Find(text)
		if at < 0 {
			continue
		}
		s.seen[rule] = true
		h := Hit{Rule: rule, Why: "a secret that this sandbox may use", Line: where(at), By: by, Secret: bytes.Clone(k.Value)}
		if !bytes.Contains(text, k.Value) {
			h.By = join(by, "another spelling")
		}
		s.hits = append(s.hits, h)
	}
	s.patterns(text, by, where)
}
