package secret

import (
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	maxName = 128
	maxID   = 64
)

// CheckName refuses what is no name of a secret: a letter or "_", and up to
// 127 letters, digits and "_" after it.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && (name[0] < '0' || name[0] > '9')
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	if !ok {
		return sandbox.Errorf(sandbox.Invalid, "%s is no name of a secret", quoted(name)).
			WithHint("a letter or \"_\", then up to %d letters, digits and \"_\": GITHUB_TOKEN", maxName-1)
	}
	return nil
}

// quoted is s fit for an error, and short: somebody may have given the value
// where the name was meant.
func quoted(s string) string {
	const shown = 12
	if len(s) > shown {
		return strconv.QuoteToASCII(s[:4]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// owner is whom a secret belongs to: a user of this machine, or the holder of
// a key.
type owner struct {
	text string
	dir  string // below which the records are
	uid  int    // -1 for the holder of a key
}

// parseOwner reads "uid:N" and "key:ID".
func parseOwner(text string) (owner, error) {
	if digits, ok := strings.CutPrefix(text, "uid:"); ok {
		n, err := strconv.ParseUint(digits, 10, 32)
		// The largest is no uid: system calls mean "none" by it.
		if err == nil && n < 1<<32-1 && strconv.FormatUint(n, 10) == digits {
			return owner{text, "owners/uid-" + digits, int(n)}, nil
		}
	}
	if id, ok := strings.CutPrefix(text, "key:"); ok && validID(id) {
		return owner{text, "owners/key-" + id, -1}, nil
	}
	return owner{}, sandbox.Errorf(sandbox.Internal, "secrets have no owner %s", quoted(text))
}

// sandboxDir returns where the records of one sandbox are.
func sandboxDir(id string) (string, error) {
	if !validID(id) {
		return "", sandbox.Errorf(sandbox.Internal, "%s is no sandbox's id", quoted(id))
	}
	return "sandboxes/id-" + id, nil
}

// validID accepts 1 to 64 letters, digits, ".", "_" and "-".
func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}
