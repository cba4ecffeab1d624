package inject

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PlaceholderPrefix begins every placeholder.
const PlaceholderPrefix = "carboy_secret_"

const (
	placeholderRandom = 32 // characters of [a-z0-9]: 165 bits
	placeholderName   = 32 // how much of a name is shown
	alphanumeric      = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewPlaceholder returns a fresh placeholder for the secret name: the prefix,
// as much of the name as is fit to be read, and 32 random characters of
// [a-z0-9]. It consists of [a-z0-9_], so no URL, header or shell changes it.
// rand is crypto/rand.Reader but in tests.
func NewPlaceholder(name string, rand io.Reader) (string, error) {
	var b strings.Builder
	b.WriteString(PlaceholderPrefix)
	for i := 0; i < len(name) && i < placeholderName; i++ {
		c := name[i] | 0x20
		if !strings.Contains(alphanumeric, string(rune(c))) {
			c = '_'
		}
		b.WriteByte(c)
	}
	b.WriteByte('_')
	// Bytes above the largest multiple of 36 are dropped: all characters are
	// equally likely.
	const limit = 256 / len(alphanumeric) * len(alphanumeric)
	var one [1]byte
	for n := 0; n < placeholderRandom; {
		if _, err := io.ReadFull(rand, one[:]); err != nil {
			return "", fmt.Errorf("read randomness for a placeholder: %w", err)
		}
		if int(one[0]) < limit {
			b.WriteByte(alphanumeric[int(one[0])%len(alphanumeric)])
			n++
		}
	}
	return b.String(), nil
}

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
