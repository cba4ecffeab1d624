package inject

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// forms returns the spellings of text that are searched for beside those that
// unescaping brings back to it.
func forms(text string) []string {
	fs := []string{text, hex.EncodeToString([]byte(text))}
	fs = append(fs, strings.ToUpper(fs[1]))
	if strings.Contains(text, " ") {
		fs = append(fs, strings.ReplaceAll(text, " ", "+"))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead := range 3 {
			fs = append(fs, within64(enc, text, lead))
		}
	}
	// Where an escaped text stands in the value itself, unescaping takes that
	// too.
	if u := unescaped(text); u != text {
		fs = append(fs, u)
	}
	slices.Sort(fs)
	return slices.Compact(fs)
}

// within64 returns what base64 makes of text after lead other bytes: those
// characters that text alone decides.
func within64(enc *base64.Encoding, text string, lead int) string {
	all := enc.EncodeToString(append(make([]byte, lead), text...))
	return all[(8*lead+5)/6 : 8*(lead+len(text))/6]
}

// matcherOf searches for all spellings of texts; nil where there is none.
func matcherOf(texts []string) *matcher {
	var all []string
	for _, t := range texts {
		if len(t) >= minPattern {
			all = append(all, forms(t)...)
		}
	}
	return newMatcher(all)
}
