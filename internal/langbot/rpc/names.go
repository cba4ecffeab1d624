package rpc

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// MinToken is the least number of a control token's characters.
const MinToken = 32

var (
	instanceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`) })
	unsafeKey    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_.-]+`) })
)

// ValidInstance reports whether s can name an instance of LangBot: 1 to 128
// letters, digits, and . _ : -, the first a letter or digit.
func ValidInstance(s string) bool { return instanceName().MatchString(s) }

// Namespace is what a workspace keeps over its generations: "ws-" and 24
// hexadecimal digits.
func Namespace(instance, workspace string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + workspace))
	return "ws-" + hex.EncodeToString(sum[:12])
}

// KeyPrefix begins the keys of a workspace's sessions in one generation.
func KeyPrefix(c langbot.Context) string {
	return fmt.Sprintf("%s-g%d-", Namespace(c.InstanceUUID, c.WorkspaceUUID), c.PlacementGeneration)
}

// CleanID is what of a session's ID follows KeyPrefix in its key: letters,
// digits, and . _ -; "" where it has none of those. Hosts know the rule, as they
// make a relay's path.
func CleanID(id string) string {
	return strings.Trim(unsafeKey().ReplaceAllString(strings.TrimSpace(id), "-"), "-")
}

// Key is what of a session's ID follows KeyPrefix in its key: CleanID where that
// is all of it, and else a part of that with the ID itself, so that no two IDs
// have the same key. It is "" where CleanID is.
func Key(id string) string {
	id = strings.TrimSpace(id)
	clean := CleanID(id)
	if clean == id || clean == "" {
		return clean
	}
	return clean[:min(len(clean), legible)] + keyMark + base64.RawURLEncoding.EncodeToString([]byte(id))
}

const (
	legible = 32  // characters of a CleanID that a Key with more begins with
	keyMark = "~" // which no CleanID has
)

// KeyID is the ID that Key made a key of; a text that is no such key is itself.
func KeyID(key string) string {
	_, code, marked := strings.Cut(key, keyMark)
	if !marked {
		return key
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(code)
	if id := string(b); err == nil && utf8.Valid(b) && Key(id) == key {
		return id
	}
	return key
}
