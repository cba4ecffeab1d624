package proxy

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// What this package refuses for, beside the codes of policy and of those that
// guard secrets.
const (
	CodeNameMismatch    = "name_mismatch"        // SNI, Host, CONNECT's host and the address disagree
	CodeBadRequest      = "bad_request"          // no HTTP, or HTTP of which two readers could make two things
	CodeLimit           = "limit_reached"        // of a rule, or of the gate
	CodeUpstream        = "upstream_failed"      // whom the request was for did not answer it
	CodeUntrusted       = "upstream_untrusted"   // its certificate did not verify
	CodeECH             = "ech_refused"          // a name is hidden where TLS is passed on unread
	CodeTooMany         = "too_many_connections" // more open connections than the gate has room for
	CodeCut             = "cut"                  // allowed before, and no longer
	CodeStalled         = "stalled"              // nothing moved for too long
	CodeNotHere         = "not_found"            // the gate's own pages have no such one
	CodeNoService       = "no_such_service"      // the policy has none of that name
	CodeTooManyCalls    = "too_many_calls"       // of services, at once
	CodeUpgrade         = "upgrade_refused"      // a call of a service that would become something else
	codeHandshake       = "handshake_failed"     // the guest did not accept the gate's certificate, or left
	maxShown            = 255                    // bytes of a host in an answer
	refusedHeader       = "X-Carboy-Refused"
	contentJSON         = "application/json"
	statusClientClosed  = 499 // in records alone: the guest left before there was an answer
	gatePages           = "http://gate.carboy.internal/"
	defaultHTTP, defTLS = 80, 443
)

// Refusal says why a request or a connection does not go on. Nothing in it is
// secret: no value of a header, of a query or of a body.
type Refusal struct {
	Status int    // of the answer, where one can be given
	Code   string // one word, for programs
	Rule   string // the ID of the rule that decided; "" where none did
	Reason string // for people
	Host   string // whom it was for, as far as known; with a port where it is not the usual one
	Hint   string // what would help; "" where nothing does

	RetryAfter int    // seconds after which to try again; 0: not said
	What       string // what a person was asked; "" where nobody was
}

// Error is its reason.
func (r *Refusal) Error() string { return r.Reason }

func refuse(status int, code, reason string) *Refusal {
	return &Refusal{Status: status, Code: code, Reason: reason}
}

func badRequest(reason string) *Refusal {
	return refuse(http.StatusBadRequest, CodeBadRequest, reason)
}

func mismatch(reason string) *Refusal {
	return refuse(http.StatusMisdirectedRequest, CodeNameMismatch, reason)
}

// Refuse is the refusal of a verdict, about host and port: what Options.Dial
// returns, as an error, where policy closes an address.
func Refuse(v policy.Verdict, host string, port uint16) *Refusal {
	return ofVerdict(v, host, port, port == defTLS)
}

// ofVerdict is a policy's refusal of what was for host and port.
func ofVerdict(v policy.Verdict, host string, port uint16, tls bool) *Refusal {
	r := &Refusal{Status: http.StatusForbidden, Code: string(v.Code), Rule: v.Rule, Reason: v.Reason}
	if r.Code == "" {
		r.Code = string(policy.CodeNotAllowed)
	}
	r.Host = withPort(host, port, tls)
	if r.Reason == "" {
		r.Reason = r.Host + " is not allowed by this sandbox's network policy"
	}
	if r.Hint = v.Hint; r.Hint == "" {
		r.Hint = hintFor(v.Code, r.Host)
	}
	return r
}

// hintFor says what would help against a policy's refusal.
func hintFor(c policy.Code, host string) string {
	switch c {
	case policy.CodeDenied:
		return "a rule denies it: only a change of the policy allows it"
	case policy.CodeRequest:
		return "see " + gatePages + " for the requests that are allowed"
	case policy.CodeBadDestination, policy.CodeProtocol, policy.CodeNotResolved:
		return "see " + gatePages + " for what is allowed"
	}
	return "ask for: --allow " + host
}

// netHost is the gate's own name.
const netHost = policy.GateHost

// withPort is host, with the port where it is not the usual one.
func withPort(host string, port uint16, tls bool) string {
	host = shown(host)
	if port == 0 || port == defTLS || port == defaultHTTP && !tls {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// shown bounds a name that the guest chose, and takes from it what is not
// printable ASCII.
func shown(host string) string {
	host = host[:min(len(host), maxShown)]
	return strings.Map(func(c rune) rune {
		if c < 0x21 || c > 0x7e {
			return '?'
		}
		return c
	}, host)
}
