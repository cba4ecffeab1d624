// Package team holds what a daemon knows of those who share it: which team an
// owner is, the keys that were made at run time, what each may have, and how
// much each had.
//
// A team is an owner of sandboxes: the holder of a key, or a user of the
// machine. It has no members. A key that is made never allows more than its
// maker's, and the key itself is kept nowhere: only its hash is.
package team

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
)

// ID is the ID of an owner's team. It is the same on every machine and for
// ever: clients keep it.
func ID(owner string) string { return named("team\x00" + owner) }

// MakerID is the ID under which the maker of a key is shown: nobody's name,
// and the same for the same one.
func MakerID(credential string) string { return named("maker\x00" + credential) }

// Name is what a team is called: its owner, without saying what that is.
func Name(owner string) string {
	if name, ok := strings.CutPrefix(owner, "key:"); ok {
		return name
	}
	return owner
}

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

// Secret is what is known of a secret by a name that E2B's clients gave it.
// Its value is in the secret store, under another name.
type Secret struct {
	ID        string            `json:"id"` // "sec_…"
	Owner     string            `json:"owner"`
	Name      string            `json:"name"` // lower case
	Kept      string            `json:"kept"` // its name in the secret store
	Version   int64             `json:"version"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// Secrets keeps them. *store.SQLite is one.
type Secrets interface {
	// NamedSecrets returns those of owner, by name.
	NamedSecrets(ctx context.Context, owner string) ([]Secret, error)
	// PutNamedSecret keeps one. That the owner has another of that name is a
	// Conflict.
	PutNamedSecret(ctx context.Context, s Secret) error
	// DeleteNamedSecret deletes one; that there is none is no error.
	DeleteNamedSecret(ctx context.Context, id string) error
}

// Settings is what the daemon remembers. *store.SQLite is one.
type Settings interface {
	// Setting returns "" for one that was never set.
	Setting(ctx context.Context, name string) (string, error)
	SetSetting(ctx context.Context, name, value string) error
}
