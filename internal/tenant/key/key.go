// Package key holds API keys: how one looks, the file that lists their
// hashes, and what the holder of each may do.
//
// A key itself is never stored, logged or compared: only its SHA-256 is, in
// constant time. A line that says anything this version does not know, are refused whole, so
// that a misspelt restriction never widens a key.
package key

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Bounds of a key file.
const (
	MaxKeys  = 10_000
	maxLine  = 64 << 10
	maxID    = 64
	maxPaths = 256
)

// Scope is something that a key allows.
type Scope string

// The scopes. A key without any has the first three.
const (
	Read    Scope = "read"    // list and look at sandboxes, their events and changes
	Manage  Scope = "manage"  // create, start, stop and remove them
	Exec    Scope = "exec"    // run commands and move files in them
	Approve Scope = "approve" // answer what sandboxes of the same owner ask; never implied
	Keys    Scope = "keys"    // make and delete keys of the same owner; never implied
	Admin   Scope = "admin"   // the machine and every owner's sandboxes and keys; never implied
)

var (
	scopes = []Scope{Read, Manage, Exec, Approve, Keys, Admin}
	usual  = scopes[:3] // of a key without any
)

// Known reports whether there is such a scope.
func (s Scope) Known() bool { return slices.Contains(scopes, s) }

// Usual returns the scopes of a key that names none.
func Usual() []Scope { return slices.Clone(usual) }

// Key is one line of a key file: what the holder of one key may do.
type Key struct {
	ID     string  `json:"id"`               // 1 to 64 of A-Z, a-z, 0-9, ".", "_" and "-"
	Hash   string  `json:"hash"`             // SHA-256 of the key, in lower-case hexadecimal
	Scopes []Scope `json:"scopes,omitempty"` // none: those of Usual
	Owner  string  `json:"owner,omitempty"`  // whom its sandboxes belong to; default "key:ID"
	// Paths are absolute directories of the host. The key may name them, and
	// what is below them, as workspace or mount. None: no host path at all.
	Paths []string `json:"paths,omitempty"`
	// HostImage allows sandboxes that see the machine's own programs.
	HostImage bool `json:"host_image,omitempty"`
	// PrivateNetwork allows policies that open what is not public: the host's own
	// addresses, its networks and its metadata service.
	PrivateNetwork bool `json:"private_network,omitempty"`
	// Isolation is the weakest wall that sandboxes of the key may have; "": its
	// team's, or what the daemon has for those who come over TCP.
	Isolation string `json:"isolation,omitempty"`

	sum [sha256.Size]byte
}

// Allows reports whether k has scope s.
func (k *Key) Allows(s Scope) bool {
	if len(k.Scopes) == 0 {
		return slices.Contains(usual, s)
	}
	return slices.Contains(k.Scopes, s)
}

// Set is the keys of one file. It is safe for use by several goroutines.
type Set struct {
	keys []*Key
}

// All returns the keys, for reading alone.
func (s *Set) All() []*Key { return s.keys }

// Find returns the key that secret is. The time it takes does not depend on
// how much of a hash was right.
func (s *Set) Find(secret string) (*Key, bool) {
	if !Looks(secret) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	var found *Key
	for _, k := range s.keys {
		if subtle.ConstantTimeCompare(k.sum[:], sum[:]) == 1 {
			found = k
		}
	}
	return found, found != nil
}

// Parse reads JSON lines, one key on each. Empty lines and lines that start
// with "#" are skipped. An error names the line, and repeats none of it.
func Parse(r io.Reader) (*Set, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	s := &Set{}
	ids, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for n := 1; sc.Scan(); n++ {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		k, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if ids[k.ID] || sums[k.sum] {
			return nil, fmt.Errorf("line %d: its id or its hash is on an earlier line", n)
		}
		if len(s.keys) == MaxKeys {
			return nil, fmt.Errorf("line %d: more than %d keys", n, MaxKeys)
		}
		ids[k.ID], sums[k.sum] = true, true
		s.keys = append(s.keys, k)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	if len(s.keys) == 0 {
		return nil, errors.New("it holds no key")
	}
	return s, nil
}

func parseLine(line []byte) (*Key, error) {
	k := &Key{}
	if err := strict.Unmarshal(line, k); err != nil {
		return nil, fmt.Errorf("not a key: %w", err)
	}
	return k, k.check()
}

// check validates k and fills in what is derived.
func (k *Key) check() error {
	if !ValidID(k.ID) {
		return fmt.Errorf("id: 1 to %d of letters, digits, \".\", \"_\" and \"-\"", maxID)
	}
	if len(k.Hash) != hex.EncodedLen(sha256.Size) {
		return errors.New("hash: not the SHA-256 of a key, 64 hexadecimal digits")
	}
	if _, err := hex.Decode(k.sum[:], []byte(k.Hash)); err != nil {
		return errors.New("hash: not the SHA-256 of a key, 64 hexadecimal digits")
	}
	for _, s := range k.Scopes {
		if !s.Known() {
			return fmt.Errorf("scopes: there are %q, no other", scopes)
		}
	}
	if len(k.Paths) > maxPaths {
		return fmt.Errorf("paths: more than %d", maxPaths)
	}
	for _, p := range k.Paths {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return errors.New("paths: each must be absolute, without \"..\", and not the root directory")
		}
	}
	return k.checkOwner()
}

func (k *Key) checkOwner() error {
	if k.Owner == "" {
		k.Owner = "key:" + k.ID
		return nil
	}
	// A key must not pass for a user of the unix socket.
	id, ok := bytes.CutPrefix([]byte(k.Owner), []byte("key:"))
	if !ok || !ValidID(string(id)) {
		return errors.New("owner: \"key:\" and an id")
	}
	return nil
}

// ValidID reports whether id is one: 1 to 64 letters, digits, ".", "_" and "-".
func ValidID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// The two spellings of a key: E2B's SDKs accept the first alone.
const (
	PrefixE2B    = "e2b_"
	prefixCarboy = "carboy_"

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
		rest, ok = strings.CutPrefix(s, prefixCarboy)
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
