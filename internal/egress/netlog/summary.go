package netlog

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a Summary.
const (
	MaxRefused = 10    // hosts that are named
	maxTold    = 1_000 // hosts that are told apart
	maxFlags   = 4     // of one host
)

// Refused is a host that something was refused for.
type Refused struct {
	Host  string // a name or an address, as the guest wrote it: to be escaped before it is shown
	Count int    // of refusals
	// Flag is what would allow it: "--allow a.example", several where several
	// ports were tried, safe to paste. "" where none would, or should: the
	// address is closed, a rule denies the host, it was refused for what was in
	// the request, or it is nothing that can be typed.
	Flag string
	// Why is the reason where the host itself was allowed: what it leads to is closed,
	// there is no such name, or what was asked for there is not allowed. As Host, it
	// is to be escaped. "" where a flag says it all.
	Why string
}

// Summary says which hosts refusals were for, the most frequent first, and how
// many there are beyond those named. What was allowed does not count, even
// if nobody answered, unless there is no such name; nor does what names no host.
func Summary(records []Record) (refused []Refused, others int) {
	var (
		tallies []*tally
		byHost  = make(map[string]*tally)
		more    = make(map[string]bool)
		// Of names that were allowed: whether there is one.
		resolved = make(map[string]bool)
	)
	for _, r := range records {
		host, arg, port := target(r)
		if r.Protocol == "dns" && r.Verdict == Allow && forAddress(r.Method) && host != "" {
			if resolved[host] = resolved[host] || !strings.HasPrefix(r.Result, noSuchName); resolved[host] {
				continue
			}
		} else if r.Verdict != Deny || r.Code == codeUnanswered || host == "" || r.Protocol == "dns" && !forAddress(r.Method) {
			continue
		}
		t := byHost[host]
		switch {
		case t != nil:
		case len(tallies) < maxTold:
			t = &tally{host: host}
			tallies = append(tallies, t)
			byHost[host] = t
		default:
			if len(more) < maxTold {
				more[host] = true
			}
			continue
		}
		t.count += max(r.Count, 1)
		t.add(r, arg, port)
	}
	tallies = slices.DeleteFunc(tallies, func(t *tally) bool { return resolved[t.host] && t.count == t.missing })
	slices.SortStableFunc(tallies, func(a, b *tally) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.host, b.host))
	})
	for _, t := range tallies[:min(len(tallies), MaxRefused)] {
		refused = append(refused, Refused{Host: t.host, Count: t.count, Flag: t.flag(), Why: t.why})
	}
	return refused, len(tallies) - len(refused) + len(more)
}

// codeUnanswered is that of what was let through, and came to nothing outside.
const codeUnanswered = "upstream_failed"

func forAddress(question string) bool {
	return question == "" || question == "A" || question == "AAAA"
}

// tally is what is known of one host.
type tally struct {
	host  string
	count int
	asked string   // the flag for a name that was only asked for
	flags []string // those for connections that were tried
	why   string   // the last reason that no flag undoes

	missing int // how often there was no such name
}

// openable are the codes of refusals that a rule undoes. To open a closed
// address, or more of a host that has rules, is nobody's to propose.
var openable = map[string]bool{"not_allowed": true, "not_resolved": true, "no_network": true, "no_such_service": true}

// noSuchName begins the result of a question that was allowed, for a name that is none.
const noSuchName = "NXDOMAIN"

// maxWhy bounds a reason, in bytes.
const maxWhy = 120

// because notes why a refusal is none that a flag undoes.
func (t *tally) because(r Record) {
	switch {
	case r.Verdict == Allow:
		t.missing += max(r.Count, 1)
		t.why = "no such name"
	case r.Reason != "":
		why, _, _ := strings.Cut(r.Reason, ";")
		t.why = short(strings.TrimPrefix(strings.TrimPrefix(why, r.Host), " is "), maxWhy)
	default:
		t.why = r.Code
	}
}

// add notes the flag that would have allowed what a record is about, or why none would.
func (t *tally) add(r Record, arg string, port uint16) {
	if r.Verdict == Allow || !openable[r.Code] {
		t.because(r)
		return
	}
	if r.Protocol == Service {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
		arg = "service:" + name
	}
	if !typeable(arg) {
		return
	}
	var flag string
	switch r.Protocol {
	case Service:
		flag = "--allow " + arg
	case "dns":
		if arg != gate {
			t.asked = "--allow " + arg
		}
		return
	case "http", "https", "tls", "tcp":
		flag = "--allow " + arg
		if port != 0 && port != 80 && port != 443 {
			flag = "--allow " + withPort(arg, port)
		}
	case "udp":
		if port == 0 {
			return
		}
		flag = "--allow udp://" + withPort(arg, port)
	default:
		return
	}
	if len(t.flags) < maxFlags && !slices.Contains(t.flags, flag) {
		t.flags = append(t.flags, flag)
	}
}

func (t *tally) flag() string {
	if len(t.flags) == 0 {
		return t.asked
	}
	return strings.Join(t.flags, " ")
}

// gate is the gate's own name, which no flag opens: a service below it has its own.
const gate = "gate.carboy.internal"

// own are the addresses of the links themselves, which no flag opens.
var own = []netip.Prefix{
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("fd63:6172:626f:7900::/64"),
}

// target returns the host that a record is about, what a flag would name, and
// the port.
func target(r Record) (host, arg string, port uint16) {
	addr, _ := netip.ParseAddr(r.Address)
	if at, err := netip.ParseAddrPort(r.Address); err == nil {
		addr, port = at.Addr(), at.Port()
	}
	addr = addr.Unmap()
	ours := slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(addr) })
	host = strings.ToLower(strings.TrimSuffix(r.Host, "."))
	if addr.IsValid() && !ours {
		arg = addr.String()
		if host == "" {
			host = arg
		}
	}
	if r.Code != "not_resolved" {
		arg = host
	}
	return host, arg, port
}

// withPort joins an argument and a port.
func withPort(arg string, port uint16) string {
	if strings.Contains(arg, ":") {
		arg = "[" + arg + "]"
	}
	return arg + ":" + strconv.Itoa(int(port))
}

// typeable reports whether a shell and a terminal take an argument for what it
// says: a guest chose it.
func typeable(arg string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789.-_:"
	return arg != "" && arg[0] != '-' && strings.Trim(arg, plain) == ""
}
