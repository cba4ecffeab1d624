package policy

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

func refuse(code Code, format string, args ...any) Verdict {
	return Verdict{Mode: ModeRefuse, Code: code, Reason: fmt.Sprintf(format, args...)}
}

func (v Verdict) hint(flag string) Verdict {
	v.Hint = "ask for: --allow " + flag
	return v
}

func deniedBy(r *rule, what string) Verdict {
	v := refuse(CodeDenied, "%s is denied by rule %s", what, r.ID)
	v.Rule = r.ID
	return v
}

func badDestination(err error) Verdict { return refuse(CodeBadDestination, "%s", err) }

// allowedBy is a verdict for a rule.
func allowedBy(r *rule, mode Mode, what string) Verdict {
	return Verdict{Mode: mode, Rule: r.ID, Reason: fmt.Sprintf("%s is allowed by rule %s", what, r.ID), Route: r.route}
}

// decidedBy is allowedBy for what goes out with no further question to the
// policy: the rule may want a person to be asked first.
func decidedBy(r *rule, mode Mode, name, what string, d *dest) Verdict {
	v := allowedBy(r, mode, what)
	v.ByAddress = slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return p.Contains(d.addr) })
	if r.ask && !weak.On(weak.NetAskOff) {
		v.Ask, v.Name = true, name
		v.Reason = fmt.Sprintf("%s is for a person to allow, by rule %s", what, r.ID)
	}
	return v
}

func allowedByDefault(mode Mode, what string) Verdict {
	return Verdict{Mode: mode, Rule: defaultRule, Reason: what + " is public, which the default allows"}
}

// where is a destination for people: "api.example.com:443", or the address
// where no name is known.
func where(name string, d *dest) string {
	if name != "" {
		return name + ":" + strconv.Itoa(int(d.port))
	}
	return netip.AddrPortFrom(d.raw, d.port).String()
}

// flag is what --allow would have to be told to open a destination.
func flag(name string, d *dest) string {
	host := name
	if host == "" {
		host = d.addr.String()
	}
	switch {
	case d.udp:
		return "udp://" + net.JoinHostPort(host, strconv.Itoa(int(d.port)))
	case d.port == 443, d.port == 80, d.port == 0: // 0: no port was asked about
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.port)))
}

func closedVerdict(name string, d *dest) Verdict {
	what := d.raw.String()
	if name != "" {
		what = name + " is at " + what + ", which"
	}
	v := refuse(CodeClosedAddress, "%s is closed: %s (%s); only a rule that names it by address, and this port, opens it", what, d.block.what, d.block.prefix)
	if d.block.never {
		v.Reason = fmt.Sprintf("%s is closed: %s (%s)", what, d.block.what, d.block.prefix)
		return v
	}
	return v.hint(flag("", d))
}

// Mode is how a connection goes on.
type Mode string

// The modes.
const (
	ModeRefuse      Mode = "refuse"      // not at all
	ModeRelay       Mode = "relay"       // bytes, unread
	ModeSniff       Mode = "sniff"       // its first bytes decide: ask Stream
	ModePassthrough Mode = "passthrough" // TLS, its hello read and passed on
	ModeInspect     Mode = "inspect"     // HTTP is read: ask Request, for each
	ModeAllow       Mode = "allow"       // a name may be resolved, a request may go
)

// Code says in one word why something was refused. Records and the answers of
// the gate carry it.
type Code string

// What this package refuses for.
const (
	CodeNotAllowed     Code = "not_allowed"     // no rule is about it
	CodeDenied         Code = "denied"          // a denying rule is
	CodeRequest        Code = "request_refused" // rules are about the host, and none matches this request
	CodeClosedAddress  Code = "closed_address"  // private, loopback, link-local, multicast, metadata or the like
	CodeNotResolved    Code = "not_resolved"    // an address that the gate has resolved no name to
	CodeProtocol       Code = "protocol_closed" // DNS elsewhere, DoT, QUIC, or not what the rule is about
	CodeBadDestination Code = "bad_destination" // no name or address that can be
)

// Verdict is a decision with its reason.
type Verdict struct {
	Mode   Mode
	Code   Code   // of a refusal; "" otherwise
	Rule   string // the ID of the rule that decided; "" where none did, "default" for DefaultPublic
	Reason string // for people: lower case; never a path, a query or a value of a header
	// Ask: nothing may go out before a person has said so. Mode says how it goes
	// on then. Name is whom it is for; "": an address.
	Ask  bool
	Name string
	// ByAddress: the rule is about the address, so that a name that was said there
	// binds nothing. Where it is false the gate has resolved the name.
	ByAddress bool
	Hint      string // what would allow it, "ask for: --allow evil.example"; "" where nothing short would
	// Route is what the deciding rule asks of the traffic; nil where a rule
	// asks for nothing or none decided. Not to be changed.
	Route *Route
}

// Allowed reports whether it is no refusal.
func (v Verdict) Allowed() bool { return v.Mode != ModeRefuse && v.Mode != "" }

// CountsAs reports whether what was counted for the rule of another verdict is counted
// for this one's.
func (v Verdict) CountsAs(other Verdict) bool {
	limits := func(v Verdict) (l Limits) {
		if v.Route != nil {
			l = v.Route.Limits
		}
		return l
	}
	return v.Rule != "" && v.Rule == other.Rule && limits(v) == limits(other)
}

// Route is what a rule asks of the traffic that it lets through.
type Route struct {
	Rule    string
	Secrets []Secret // those that the sandbox was given, with defaults filled in
	Auth    string
	// Placeholders is the rule's own.
	Placeholders string
	Roots        string
	Limits       Limits
}

// Conn is a connection, or a flow of datagrams, of which no byte was read.
type Conn struct {
	UDP  bool
	Addr netip.AddrPort // where it goes; an IPv4-mapped address counts as the IPv4 one
	// Names are those that the gate has resolved to the address, for this
	// sandbox. Empty: it was dialled by number.
	Names []string
}

// Stream is a connection whose first bytes said whom it is for, or that said
// nothing of the kind: TLS without SNI, another protocol, or one in which the
// server speaks first. ModeInspect for what turns out not to be HTTP is for
// the inspecting proxy to refuse.
type Stream struct {
	Conn
	Name string // SNI, or the host of the first request; "": none was named, and the address is meant
	TLS  bool
}

// Request is one HTTP request on an inspected stream. Its name and address
// belong together: Stream has said so of them.
type Request struct {
	Addr   netip.AddrPort
	Name   string // the host, without a port, that SNI, Host and the address agree on; "" or an address: by number
	TLS    bool
	Method string
	URL    *url.URL            // Path, RawPath and RawQuery are read
	Header map[string][]string // by canonical name, as net/http has them
}
