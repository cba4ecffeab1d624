package secret

import (
	"bytes"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of values and sources.
const (
	minValue = 8        // bytes: what is shorter turns up in answers by chance
	MaxValue = 64 << 10 // bytes
	maxTTL   = 30 * 24 * time.Hour

	maxPath = 4096
	maxArgs = 256
	maxArgv = 64 << 10 // bytes, all together
)

// Kind says where a value comes from.
type Kind string

// The kinds.
const (
	KindValue   Kind = "value"
	KindFile    Kind = "file"
	KindCommand Kind = "command"
)

// Source is where a secret's value comes from: exactly one of Value, File and
// Command.
type Source struct {
	Value Value
	// File is an absolute path, read at each use with the owner's rights. One
	// end of line at its end is not part of the value.
	File string
	// Command is run with the owner's rights, an absolute path first; what it
	// prints is the value, but for one end of line at its end.
	Command []string
	// TTL is how long a value that Command printed is used; 0: once.
	TTL time.Duration
	// Key is a private key, as PEM: it has many lines, is for git's remotes alone, and goes into no
	// request.
	Key bool
}

// kind returns which source s is.
func (s *Source) kind() Kind {
	switch {
	case s.File != "":
		return KindFile
	case len(s.Command) > 0:
		return KindCommand
	default:
		return KindValue
	}
}

// check refuses a source that can't work for o.
func (s *Source) check(o owner) error {
	n := 0
	for _, given := range []bool{!s.Value.Empty(), s.File != "", len(s.Command) > 0} {
		if given {
			n++
		}
	}
	switch {
	case n == 0:
		return sandbox.Errorf(sandbox.Invalid, "the secret has no value").WithHint("give a value, a file or a command")
	case n > 1:
		return sandbox.Errorf(sandbox.Invalid, "the secret has more than one source").WithHint("give one of a value, a file and a command")
	case s.TTL < 0 || s.TTL > maxTTL || s.TTL > 0 && s.kind() != KindCommand:
		return sandbox.Errorf(sandbox.Invalid, "a time to live of %s", s.TTL).WithHint("for commands only, and at most %s", maxTTL)
	case s.kind() != KindValue && o.uid < 0:
		return sandbox.Errorf(sandbox.Denied, "secrets from files and commands are for users of this machine").
			WithHint("give the value")
	}
	switch s.kind() {
	case KindFile:
		return checkPath(s.File)
	case KindCommand:
		return checkArgv(s.Command)
	default:
		return s.checkText(*s.Value.p())
	}
}

// checkText refuses a value that is none of its source's kind.
func (s *Source) checkText(v []byte) error {
	if s.Key {
		return checkKey(v)
	}
	return checkValue(v)
}

// checkKey refuses what is no private key. It tells nothing of it.
func checkKey(v []byte) error {
	if len(v) > MaxValue {
		return sandbox.Errorf(sandbox.Invalid, "the key is longer than %d bytes", MaxValue)
	}
	if block, rest := pem.Decode(v); block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") || len(bytes.TrimSpace(rest)) > 0 {
		return sandbox.Errorf(sandbox.Invalid, "the key is no private key, as PEM").
			WithHint("as ssh-keygen writes one: it begins with -----BEGIN OPENSSH PRIVATE KEY-----")
	}
	return nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || len(path) > maxPath || strings.IndexByte(path, 0) >= 0 {
		return sandbox.Errorf(sandbox.Invalid, "the secret's file needs an absolute path of at most %d bytes", maxPath)
	}
	return nil
}

func checkArgv(argv []string) error {
	size := 0
	for _, a := range argv {
		size += len(a)
	}
	switch {
	case len(argv) > maxArgs || size > maxArgv:
		return sandbox.Errorf(sandbox.Invalid, "the secret's command is too long").WithHint("at most %d arguments and %d bytes", maxArgs, maxArgv)
	case !filepath.IsAbs(argv[0]):
		return sandbox.Errorf(sandbox.Invalid, "the secret's command %s is not an absolute path", quoted(argv[0])).
			WithHint("name the program by its whole path; nothing is searched for")
	case slices.ContainsFunc(argv, func(a string) bool { return strings.IndexByte(a, 0) >= 0 }):
		return sandbox.Errorf(sandbox.Invalid, "the secret's command holds a NUL")
	}
	return nil
}

// checkValue refuses a value that could not be put into a header, or not be
// looked for. It tells nothing of it.
func checkValue(v []byte) error {
	switch i := bytes.IndexFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); {
	case len(v) < minValue:
		return sandbox.Errorf(sandbox.Invalid, "the secret's value is shorter than %d bytes", minValue).
			WithHint("answers are searched for it, and something so short turns up by chance")
	case len(v) > MaxValue:
		return sandbox.Errorf(sandbox.Invalid, "the secret's value is longer than %d bytes", MaxValue)
	case i >= 0 && i == len(v)-1 && v[i] == '\n':
		return sandbox.Errorf(sandbox.Invalid, "the secret's value ends in a newline").WithHint("leave it out: printf %%s instead of echo")
	case i >= 0:
		return sandbox.Errorf(sandbox.Invalid, "the secret's value holds a control character, such as the end of a line").
			WithHint("a value goes into a header, and must be one line")
	case v[0] == ' ' || v[0] == '\t' || v[len(v)-1] == ' ' || v[len(v)-1] == '\t':
		return sandbox.Errorf(sandbox.Invalid, "the secret's value begins or ends in a blank").
			WithHint("headers lose it: leave it out")
	}
	return nil
}

// trim takes one end of line from the end of b.
func trim(b []byte) (rest []byte, trimmed bool) {
	rest, trimmed = bytes.CutSuffix(b, []byte("\n"))
	if trimmed {
		rest = bytes.TrimSuffix(rest, []byte("\r"))
	}
	return rest, trimmed
}
