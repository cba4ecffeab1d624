package team

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// NoID is the UUID that is none.
const NoID = "00000000-0000-0000-0000-000000000000"

// uuid spells b as a UUID of a version. A library for that would bring
// database/sql along.
func uuid(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// NewID returns a UUID out of randomness.
func NewID(rand io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("read randomness for an ID: %w", err)
	}
	return uuid(b, 4), nil
}

// named returns the UUID that a text always has.
func named(text string) string {
	sum := sha256.Sum256([]byte("carboy\x00" + text))
	return uuid([16]byte(sum[:16]), 8)
}

// ValidID reports whether s is a UUID, in lower case.
func ValidID(s string) bool {
	if len(s) != len(NoID) {
		return false
	}
	for _, i := range []int{8, 13, 18, 23} {
		if s[i] != '-' {
			return false
		}
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	b, err := hex.DecodeString(digits)
	return err == nil && hex.EncodeToString(b) == digits
}
