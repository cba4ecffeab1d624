package inject

// Find reports whether chunks, one after the other, hold one of texts, how
// many bytes of them a reader would have been given by then or by the end, and
// how many were held at most.
func Find(texts []string, frames bool, chunks ...[]byte) (hit bool, passed, held int) {
	m := matcherOf(texts)
	var s scanner = newSearcher(m)
	if frames {
		s = newFrames(m)
	}
	total := 0
	for _, c := range chunks {
		if s.feed(c) != clean {
			return true, passed, held
		}
		total += len(c)
		held = max(held, s.held())
		passed = max(passed, total-s.held())
	}
	if s.end() == found {
		return true, passed, held
	}
	return false, passed, held
}

// FindRaw is the search alone, without other spellings.
func FindRaw(texts []string, b []byte) bool {
	_, hit := newMatcher(texts).scan(0, b)
	return hit
}

// Unescaped is what the search makes of escapes.
func Unescaped(s string) string { return unescaped(s) }

// FindJSON returns the spots that pointer leads to in text.
func FindJSON(text []byte, pointer string) (spots [][2]int, err error) {
	found, err := findJSON(text, pointer)
	for _, f := range found {
		spots = append(spots, [2]int{f.start, f.end})
	}
	return spots, err
}

// JSONText writes a value as a JSON string.
func JSONText(v string) string { return jsonText(v) }

// NewSearch returns what searches a stream for values, piece by piece.
func NewSearch(values []string) func([]byte) bool {
	s := newSearcher(matcherOf(values))
	return func(b []byte) bool { return s.feed(b) != clean || s.held() > 1<<20 }
}
