package gitgate

import (
	"context"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Action is what is done about something that is found in a push.
type Action string

// The actions. The zero one is the default of what it is about.
const (
	Allow Action = "allow"
	Deny  Action = "deny"
	Ask   Action = "ask"
)

// Policy says what may be pushed to a remote.
type Policy struct {
	ReadOnly bool // nothing may
	// Protected are patterns of refs that nothing changes, of whole names, as path.Match has
	// them: refs/heads/v*, whose star stands for no slash. What ends with /** is about all that
	// is below: refs/heads/release/**.
	Protected []string

	Deletions   Action // of refs; Deny
	Forced      Action // updates by which upstream's refs lose commits; Deny
	Secrets     Action // Deny
	Held        Action // files that hosts and forges run or obey; Ask
	Binaries    Action // files that are no text; Allow
	Unscannable Action // what can't be looked into; Ask

	MaxBlob    int64 // bytes of a file; 50 MiB
	MaxPush    int64 // bytes of all that is new, unpacked; 1 GiB
	MaxCommits int   // 10,000
	MaxRefs    int   // of one push; 32
}

// complete puts the defaults in the place of what is not said.
func (p Policy) complete() (Policy, error) {
	for _, a := range []struct {
		what   string
		action *Action
		plain  Action
	}{
		{"deletions", &p.Deletions, Deny},
		{"forced updates", &p.Forced, Deny},
		{"secrets", &p.Secrets, Deny},
		{"held files", &p.Held, Ask},
		{"binaries", &p.Binaries, Allow},
		{"what is unscannable", &p.Unscannable, Ask},
	} {
		switch *a.action {
		case "":
			*a.action = a.plain
		case Allow, Deny, Ask:
		default:
			return p, sandbox.Errorf(sandbox.Invalid, "%s: %.40q is none of allow, ask and deny", a.what, string(*a.action))
		}
	}
	for _, pattern := range p.Protected {
		if problem := gitremote.CheckPattern(pattern); problem != "" {
			return p, sandbox.Errorf(sandbox.Invalid, "protected refs: %.80q: %s", pattern, problem).WithHint("%s", gitremote.PatternForm)
		}
	}
	if p.MaxBlob < 0 || p.MaxPush < 0 || p.MaxCommits < 0 || p.MaxRefs < 0 {
		return p, sandbox.Errorf(sandbox.Invalid, "a limit below nothing")
	}
	orDefault(&p.MaxBlob, 50<<20)
	orDefault(&p.MaxPush, 1<<30)
	orDefault(&p.MaxCommits, 10_000)
	orDefault(&p.MaxRefs, 32)
	return p, nil
}

func orDefault[T int | int64](v *T, plain T) {
	if *v == 0 {
		*v = plain
	}
}

// protects reports whether a ref is one that nothing changes. Case makes no difference: upstream's disk may make none.
func (p Policy) protects(ref string) bool {
	ref = strings.ToLower(ref)
	for _, pattern := range p.Protected {
		plain, below := strings.CutSuffix(strings.ToLower(pattern), "/**")
		at := ref
		if below {
			at = path.Dir(ref)
		}
		for ; at != "."; at = path.Dir(at) {
			if ok, err := path.Match(plain, at); ok && err == nil {
				return true
			}
			if !below {
				break
			}
		}
	}
	return false
}

// Update is what a push does to a ref.
type Update struct {
	Ref string
	Old string // "": it is made
	New string // "": it is removed
}

// String is an update for people.
func (u Update) String() string {
	const digits = 12
	switch ref := short(u.Ref); {
	case u.Old == "":
		return ref + " made at " + clip(u.New, digits)
	case u.New == "":
		return ref + " removed from " + clip(u.Old, digits)
	default:
		return ref + " " + clip(u.Old, digits) + ".." + clip(u.New, digits)
	}
}

// Kind is what a finding is of.
type Kind string

// The kinds.
const (
	Secret      Kind = "secret"
	HeldFile    Kind = "held"
	Binary      Kind = "binary"
	Unscannable Kind = "unscannable"
	DeletedRef  Kind = "deleted"
	ForcedRef   Kind = "forced"
)

// Finding is something in a push that a policy is about. Nothing in it is a secret; names
// of files and refs are hostile text.
type Finding struct {
	Kind   Kind
	Rule   string // of a secret: which one found it
	Why    string
	Ref    string // of an update
	Commit string // of a secret where it first is, and of others where it last is; "" where that is not known
	Blob   string // of a file: what it is there
	Path   string // "": it is in a message or another part of the commit or tag itself
	Line   int    // 0: it is not known, or there are none
	Action Action
}

// Question is what a person is asked about a push.
type Question struct {
	Remote   string
	Updates  []Update  // what an answer is about
	Shown    []Update  // the same as people may see it: names that seem to have a secret are not shown
	Findings []Finding // those that are asked about: MaxFindings at most, of each kind some
	Counts   []Count   // of all of them
	Commits  int       // that are new
	Bytes    int64     // of all that is new, unpacked

	List []Commit // the newest of them, the oldest first
	Diff string   // what they change, one by one, without what seems to be a secret
	Cut  bool     // Diff is its beginning
}

// Answer is what a person says.
type Answer struct {
	Allow  bool
	Reason string // shown to who pushes
}

// Asker has a person asked. Where it fails, the push is refused.
type Asker interface {
	Ask(ctx context.Context, q Question) (Answer, error)
}

// MaxFindings is how many findings of a push are named.
const MaxFindings = 50
