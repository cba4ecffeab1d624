package key

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// The two spellings of a key: E2B's SDKs accept the first alone.
const (
	PrefixE2B    = "e2b_"
	PrefixCarboy = "carboy_"

	digits = 40 // hexadecimal digits after the prefix: 160 bits
)

// New returns a fresh secret in the spelling that E2B's SDKs accept, and the
// hash that stands for it in a key file. The secret is shown once, to its
// holder; rand is crypto/rand.Reader but in tests.
func New(rand io.Reader) (secret, hash string, err error) {
	var b [digits / 2]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", "", fmt.Errorf("read randomness for a key: %w", err)
	}
	secret = PrefixE2B + hex.EncodeToString(b[:])
	return secret, Hash(secret), nil
}

// Hash returns what a key file holds in a secret's place.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Looks reports whether s is spelt as a key. A hash of anything else, such as
// a short password, never matches.
func Looks(s string) bool {
	rest, ok := strings.CutPrefix(s, PrefixE2B)
	if !ok {
		rest, ok = strings.CutPrefix(s, PrefixCarboy)
	}
	if !ok || len(rest) != digits {
		return false
	}
	for _, c := range []byte(rest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
