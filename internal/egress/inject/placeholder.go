package inject

import (
	"fmt"
	"io"
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
