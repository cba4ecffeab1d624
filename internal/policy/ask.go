package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// How long an answer is waited for.
const (
	DefaultAskTimeout = 300 * time.Second
	minAskTimeout     = time.Second
	maxAskTimeout     = time.Hour
)

// compileAsking reads what a policy says of what is asked, and writes the time in
// one form.
func compileAsking(a *Asking, p *Errors) time.Duration {
	if a.Timeout == "" {
		return DefaultAskTimeout
	}
	d, err := time.ParseDuration(a.Timeout)
	if err != nil || d < minAskTimeout || d > maxAskTimeout {
		p.Addf("ask.timeout", fmt.Sprintf("from %s to %s, such as 120s", minAskTimeout, maxAskTimeout), "%s is no time to wait for an answer", Quoted(a.Timeout))
		return DefaultAskTimeout
	}
	a.Timeout = d.String()
	return d
}

// AskTimeout is how long a person has to answer.
func (s *Set) AskTimeout() time.Duration { return s.askTimeout }

// Revision is the same for policies that say the same, word for word, and for no
// others.
func (s *Set) Revision() string { return s.revision }

const revisionBytes = 16

func revisionOf(p *Policy) string {
	raw, err := json.Marshal(p)
	if err != nil { // texts and numbers alone are in it
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:revisionBytes])
}

// Given are the secrets of a route, which may be nil.
func (r *Route) Given() []Secret {
	if r == nil {
		return nil
	}
	return r.Secrets
}

// AsksForSecret reports whether a person is asked before one of a route's secrets
// goes out.
func (r *Route) AsksForSecret() bool {
	return slices.ContainsFunc(r.Given(), func(s Secret) bool { return s.Ask })
}
