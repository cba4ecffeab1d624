package approval

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api"
)

// Kind is what waits for an answer.
type Kind string

// The kinds.
const (
	Request    Kind = "request"    // one of HTTP
	Connection Kind = "connection" // one that nobody reads
	Secret     Kind = "secret"     // a request, for a secret is put into it
	Push       Kind = "push"       // a push that goes through the git gate
)

// Question is what a person is asked. Two that are equal are one: all that an
// answer is bound to is in it.
type Question struct {
	Kind     Kind   `json:"kind"`
	Rule     string `json:"rule"`     // the ID of the rule that asks
	Revision string `json:"revision"` // of the policy that it is in
	Protocol string `json:"protocol"` // "https", "http", "tls", "tcp" or "udp"
	Host     string `json:"host"`     // a name, or an address where none is known
	Port     uint16 `json:"port"`
	// Address is where it goes, where the rule is about that: there, Host is any that
	// the sandbox has said. "": the rule is about Host, which the gate has resolved.
	Address string `json:"address,omitempty"`
	Method  string `json:"method,omitempty"`
	Target  string `json:"target,omitempty"` // path and query as they are sent
	Secret  string `json:"secret,omitempty"` // the name of the one that is to go out
	// Body: more goes out than is asked about, a body or what follows an upgrade,
	// which nobody has seen.
	Body bool `json:"body,omitempty"`
	// Push is the digest of what would be pushed: the objects that refs are to lead to, and where they led.
	Push string `json:"push,omitempty"`
}

// alone reports whether the question is of one request or connection, and no equal
// one joins it: what else is in that may be another thing.
func (q Question) alone() bool { return q.Body || q.Kind == Connection }

// Bounds of a question: nothing of it is ever cut, for a person must see all that
// an answer lets through.
const (
	MaxTarget = 2048
	maxField  = 256
)

// ErrTooLong is of a question that can't be put whole.
var ErrTooLong = errors.New("a person can't be asked about so long a request")

// Check fails for what no gate of ours asks: a gate may be in others' hands.
func (q Question) Check() error {
	for _, f := range []struct {
		text string
		most int
	}{
		{q.Rule, maxField},
		{q.Revision, maxField},
		{q.Protocol, maxField},
		{q.Host, maxField},
		{q.Address, maxField},
		{q.Method, maxField},
		{q.Target, MaxTarget},
		{q.Secret, maxField},
		{q.Push, maxField},
	} {
		if len(f.text) > f.most {
			return ErrTooLong
		}
		if !utf8.ValidString(f.text) || strings.ContainsFunc(f.text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("a question with characters that no request has")
		}
	}
	if _, err := netip.ParseAddr(q.Address); q.Address != "" && err != nil {
		return errors.New("a question with an address that is none")
	}
	if q.Rule == "" || q.Host == "" || q.Kind != Request && q.Kind != Connection && q.Kind != Secret && (q.Kind != Push || q.Push == "") {
		return errors.New("a question without a rule, a host or a kind")
	}
	return nil
}

// Path is the target without its query.
func (q Question) Path() string {
	path, _, _ := strings.Cut(q.Target, "?")
	return path
}

// What is the question in a few words: "POST https://api.example.com/v1/items".
func (q Question) What() string { return q.what(q.Target) }

// Quiet is What without the query, which records do not have.
func (q Question) Quiet() string { return q.what(q.Path()) }

func (q Question) what(target string) string {
	if q.Kind == Push {
		return "push " + target
	}
	host := q.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if q.Protocol != "https" && q.Protocol != "http" || q.Port != map[string]uint16{"https": 443, "http": 80}[q.Protocol] {
		host = fmt.Sprintf("%s:%d", host, q.Port)
	}
	text := q.Protocol + "://" + host + target
	if q.Method != "" {
		text = q.Method + " " + text
	}
	if q.Address != "" && q.Address != q.Host {
		text += " to " + q.Address
	}
	if q.Secret != "" {
		text += " with " + q.Secret
	}
	return text
}

// Scope is how far an answer goes.
type Scope string

// The scopes.
const (
	Once    Scope = "once"    // what waits now
	Sandbox Scope = "sandbox" // the same question of this sandbox, until the grant ends
	Always  Scope = "always"  // what waits now; and a rule is written for the same
)

// Bounds of a grant.
const MaxGrant = 24 * time.Hour

// Answer is what a gate is told of a question of its own.
type Answer struct {
	ID       string    `json:"id"`
	Question Question  `json:"question"` // as it was understood: another one is not answered
	Event    Event     `json:"event"`    // Allow, Grant or Deny
	Until    time.Time `json:"until,omitzero"`
	Full     bool      `json:"full,omitempty"` // denied by the daemon, which has too many questions
}

// Held is a question that is open.
type Held struct {
	ID       string    `json:"id"`
	Question Question  `json:"question"`
	Asked    time.Time `json:"asked"`
	Expires  time.Time `json:"expires"`
	Waiting  int       `json:"waiting"` // requests or connections
	// Push is what a question of that kind is about, for who answers.
	Push *api.ApprovalPush `json:"push,omitempty"`
}

// Gone is a question that is not open any more, or a grant that ended.
type Gone struct {
	ID    string `json:"id"`
	State State  `json:"state"`
}

// Snapshot is what a queue holds, and what it did not long ago.
type Snapshot struct {
	Version uint64 `json:"version"`
	Open    []Held `json:"open"`
	Gone    []Gone `json:"gone"`
}
