package policy

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
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
