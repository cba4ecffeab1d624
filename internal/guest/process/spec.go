package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// Spec is a command as a caller asked for it.
type Spec struct {
	Argv     []string          // argv[0] is looked up in the command's PATH
	Env      map[string]string // on top of the sandbox's own
	Cwd      string            // absolute, or relative to the start directory; "": that; "~": the home
	User     string            // "": the sandbox's default
	Terminal *jail.Size        // nil: pipes
	Stdin    bool              // false: /dev/null; a terminal always has input
	// Files are its standard files; nil: such as Terminal and Stdin say. What it
	// writes is then not the engine's to tell, nor what is said of a command that
	// is not found. Start keeps none of them open.
	Files   *[3]*os.File
	Timeout time.Duration     // 0: none
	Tag     string            // a name that need not be unique
	Labels  map[string]string // kept for the caller
	// OrphanGrace is how long a command that nobody follows waits for a
	// follower, its output held back, before it is killed. 0: it goes on, and
	// the oldest output is dropped.
	OrphanGrace time.Duration
	// Memory is how many bytes of their own the command and all that it started
	// may hold, as far as is seen by looking a few times a second; 0: any.
	Memory int64
}

// Defaults fill what a Spec leaves open.
type Defaults struct {
	User string
	Cwd  string // "": the user's home
	Env  map[string]string
}

// Errors that callers of an Engine tell apart. Their text is fit to be shown.
var (
	ErrInvalid  = errors.New("invalid command")
	ErrUser     = errors.New("no such user")
	ErrDenied   = errors.New("not allowed")
	ErrNotFound = errors.New("no such command")
	ErrEnded    = errors.New("the command has ended")
	ErrClosed   = errors.New("the agent is shutting down")
)

// Limits of execve(2), which a kernel states no other way than by E2BIG.
const (
	maxString = 128<<10 - 1 // one argument or NAME=VALUE
	maxTotal  = 2 << 20     // all of them, with terminators and pointers
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// validID reports whether an id is 1 to 64 of [A-Za-z0-9._-].
func validID(id string) bool {
	if id == "" || len(id) > 64 {
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

// validate refuses what no kernel could start.
func (s *Spec) validate() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return fmt.Errorf("%w: no program is named", ErrInvalid)
	}
	for i, a := range s.Argv {
		if strings.Contains(a, "\x00") {
			return fmt.Errorf("%w: argument %d has a zero byte", ErrInvalid, i)
		}
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%w: %q can't be the name of an environment variable", ErrInvalid, name)
		}
		if strings.Contains(value, "\x00") {
			return fmt.Errorf("%w: environment variable %s has a zero byte", ErrInvalid, name)
		}
	}
	if strings.Contains(s.Cwd, "\x00") || len(s.Cwd) >= 4096 {
		return fmt.Errorf("%w: the working directory can't be a path", ErrInvalid)
	}
	if s.Files != nil && (s.Terminal != nil || s.Stdin) {
		return fmt.Errorf("%w: a terminal or input, beside standard files that are given", ErrInvalid)
	}
	if s.Memory < 0 {
		return fmt.Errorf("%w: the limit of memory is negative", ErrInvalid)
	}
	if s.Timeout < 0 || s.OrphanGrace < 0 {
		return fmt.Errorf("%w: a time limit is negative", ErrInvalid)
	}
	return nil
}

// tooLong says which part of a command execve would refuse, or "".
func tooLong(argv, env []string) string {
	total := 0
	for i, a := range argv {
		if len(a) > maxString {
			return fmt.Sprintf("argument %d is %d bytes long; the kernel takes at most %d", i, len(a), maxString)
		}
		total += len(a) + 9
	}
	for _, e := range env {
		if len(e) > maxString {
			name, _, _ := strings.Cut(e, "=")
			return fmt.Sprintf("environment variable %.64s is %d bytes long; the kernel takes at most %d with its name",
				name, len(e)-len(name)-1, maxString)
		}
		total += len(e) + 9
	}
	if total > maxTotal {
		return fmt.Sprintf("arguments and environment are %d bytes together; the kernel takes at most %d", total, maxTotal)
	}
	return ""
}

// environ is a command's whole environment, sorted.
func (s *Spec) environ(a account.Account, d Defaults) []string {
	env := map[string]string{
		"PATH": defaultPath, "HOME": a.Home, "USER": a.Name, "LOGNAME": a.Name, "SHELL": a.Shell,
	}
	if s.Terminal != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, d.Env)
	maps.Copy(env, s.Env)
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// dir is a command's working directory.
func (s *Spec) dir(a account.Account, d Defaults) string {
	start := d.Cwd
	if start == "" {
		start = a.Home
	}
	rest, home := strings.CutPrefix(s.Cwd, "~")
	switch {
	case s.Cwd == "":
		return start
	case home && (rest == "" || rest[0] == '/'):
		return path.Join(a.Home, rest)
	case path.IsAbs(s.Cwd):
		return s.Cwd
	}
	return path.Join(start, s.Cwd)
}
