package sandbox

import (
	"context"
	"net"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// DefaultStartTime is how long the agent of an instance that starts may take to answer:
	// many times what it takes, for a machine may be slow and start many at once.
	DefaultStartTime = 2 * time.Minute
	// defaultStartupTimeout is how long a Startup may take to be ready that
	// does not say.
	defaultStartupTimeout = 5 * time.Minute
	// maxStartupTimeout is the longest that one may ask for.
	maxStartupTimeout = time.Hour

	maxStartupText = 32 << 10 // bytes of a command
	maxAccount     = 256      // bytes of an account's name
	maxCwd         = 4096
)

// Startup is what a sandbox runs at each of its starts.
type Startup struct {
	// Command is run by a login shell as the Spec's user, in its directory and
	// with its environment, and goes on in the background; "": nothing is run.
	Command string `json:"command,omitempty"`
	// Ready is run likewise, again and again until it ends with status 0; "":
	// the sandbox is ready once Command has been started.
	Ready string `json:"ready,omitempty"`
	// Timeout bounds both; 0: defaultStartupTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// TemplateRef names the build of a template that a sandbox was made from. It
// promises nothing: what the build has is in the rest of the Spec.
type TemplateRef struct {
	ID    string `json:"id"`
	Build string `json:"build"`
	Alias string `json:"alias,omitempty"`
}

// Clone returns a copy.
func (s *Startup) Clone() *Startup {
	if s == nil {
		return nil
	}
	c := *s
	return &c
}

// StartFunc runs sb.Spec.Startup in an instance that answers; dial connects to
// its guest agent. It returns once that is ready, or an Error with the last of
// its output.
type StartFunc func(ctx context.Context, sb *Sandbox, dial func(context.Context) (net.Conn, error)) error

// IsRoot reports whether user, as a Spec has it, is uid 0 whatever the image
// says.
func IsRoot(user string) bool {
	return user == "root" || user != "" && strings.Trim(user, "0") == ""
}

func (s Spec) checkStart() *Error {
	if !validAccount(s.User) {
		return Errorf(Invalid, "user %s: not an account's name", refText(s.User)).
			WithHint("user, root, or one of the image's accounts")
	}
	if c := s.Cwd; c != "" && (len(c) > maxCwd || !path.IsAbs(c) || path.Clean(c) != c || !printable(c)) {
		return Errorf(Invalid, "cwd %s: not a clean absolute path", refText(c)).WithHint("/home/user, or another")
	}
	if s.Startup == nil {
		return nil
	}
	for name, text := range map[string]string{"startup.command": s.Startup.Command, "startup.ready": s.Startup.Ready} {
		if len(text) > maxStartupText || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return Errorf(Invalid, "%s: not a shell's command", name).WithHint("at most %d bytes of UTF-8 without NUL", maxStartupText)
		}
	}
	if t := s.Startup.Timeout; t < 0 || t > maxStartupTimeout {
		return Errorf(Invalid, "startup.timeout: %v is out of bounds", t).WithHint("up to %v", maxStartupTimeout)
	}
	return nil
}

func (s Spec) checkStartup(o Offer) *Error {
	if s.Startup != nil && !o.Start {
		return Errorf(Unsupported, "startup: no commands can be run at a start here").WithHint("leave it out")
	}
	return nil
}

// validAccount reports whether s may be an account's name or number.
func validAccount(s string) bool {
	if s == "" || len(s) > maxAccount || s[0] == '-' || s[0] == '+' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || c == ':' || c == ',' || c == '/'
	})
}
