package policy

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Note tells of something that an import could not carry over as it was.
type Note struct {
	Where string `json:"where"` // the field, "network.allowedDomains"
	Text  string `json:"text"`  // lower case
}

// String returns both, for people.
func (n Note) String() string { return n.Where + ": " + n.Text }

// E2BNetwork is what E2B's API takes about the traffic that leaves a sandbox.
// Its other network options are about what comes in, and none of a policy's.
type E2BNetwork struct {
	AllowInternetAccess *bool    `json:"allow_internet_access,omitempty"` // false: denyOut of everything
	AllowOut            []string `json:"allowOut,omitempty"`              // addresses, ranges, names and wildcards
	DenyOut             []string `json:"denyOut,omitempty"`               // addresses and ranges
	// Rules put headers into requests to a name. They allow nothing.
	Rules map[string][]E2BRule `json:"rules,omitempty"`
	// EgressProxy is refused: the gate is the only way out.
	EgressProxy *E2BProxy `json:"egressProxy,omitempty"`
}

// E2BRule is one of E2B's rules about a name.
type E2BRule struct {
	Transform *E2BTransform `json:"transform,omitempty"`
}

// E2BTransform is what a rule does to requests.
type E2BTransform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// E2BProxy is a SOCKS5 proxy.
type E2BProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// FromE2B makes a policy of E2B's options, with their meaning: without any,
// the public internet; what is denied is taken away; what is allowed counts
// for more than what is denied; names are only of use where everything else
// is denied. Values of headers become secrets, which Secrets gives. What can't
// be kept is an error that joins *Error, and what differs is a Note.
func FromE2B(n E2BNetwork) (Policy, []Note, error) {
	var errs problems
	im := e2bImport{errs: &errs}
	im.split(n)
	if n.EgressProxy != nil {
		errs.add("egressProxy", "no proxy can be put behind the gate", "leave it out")
	}
	p := Policy{Version: Version, Default: DefaultPublic}
	if im.denyAll {
		p.Default = DefaultDeny
	}
	if len(im.hosts) > 0 && !im.denyAll {
		errs.add("allowOut", "names restrict nothing while everything else is allowed", "add \"0.0.0.0/0\" to denyOut")
	}
	if im.denyAll && im.allowAll {
		// What is allowed counts for more, so nothing of denyOut is left.
		p.Default = DefaultPublic
	}
	im.destinations(&p)
	im.headers(n, &p)
	if err := errs.err(); err != nil {
		return Policy{}, nil, err
	}
	if _, err := Compile(p, slices.Collect(maps.Keys(n.Secrets()))); err != nil {
		return Policy{}, nil, err
	}
	if p.Default == DefaultPublic {
		im.note("network", "an address that is dialled by number, and that no name was resolved to, is refused unless allowOut has it")
	}
	return p, im.notes, nil
}

type e2bImport struct {
	errs              *problems
	notes             []Note
	allowAll, denyAll bool
	hosts             []string
	allowed, denied   []netip.Prefix
}

func (im *e2bImport) note(where, text string) {
	im.notes = append(im.notes, Note{where, text})
}

// split sorts the entries of both lists by what they are.
func (im *e2bImport) split(n E2BNetwork) {
	im.denyAll = n.AllowInternetAccess != nil && !*n.AllowInternetAccess
	tooMany("allowOut", len(n.AllowOut), maxHosts, im.errs)
	tooMany("denyOut", len(n.DenyOut), maxHosts, im.errs)
	for i, s := range n.AllowOut {
		prefix, problem, hint := parsePrefix(s)
		_, _, notName, _ := cleanPattern(s)
		switch {
		case problem == "" && prefix.Bits() == 0:
			im.allowAll = true
		case problem == "":
			im.allowed = append(im.allowed, prefix)
		case prefix.IsValid():
			im.errs.add(at("allowOut", i), problem, hint)
		case notName != "":
			im.errs.add(at("allowOut", i), notName, "a name, *.example.com, an address or a range")
		default:
			im.hosts = append(im.hosts, s)
		}
	}
	for i, s := range n.DenyOut {
		prefix, problem, hint := parsePrefix(s)
		switch {
		case problem == "" && prefix.Bits() == 0:
			im.denyAll = true
		case problem == "":
			im.denied = append(im.denied, prefix)
		case prefix.IsValid():
			im.errs.add(at("denyOut", i), problem, hint)
		default:
			im.errs.add(at("denyOut", i), problem, "names can't be denied: deny \"0.0.0.0/0\", and allow those that are wanted")
		}
	}
}

// destinations makes the rules about what may be reached.
func (im *e2bImport) destinations(p *Policy) {
	if len(im.hosts) > 0 {
		p.Rules = append(p.Rules, Rule{ID: "allow-out/names", Hosts: im.hosts})
		im.note("allowOut", "names are for HTTP and TLS on ports 443 and 80, and TLS to them is intercepted")
	}
	if len(im.allowed) > 0 {
		list := prefixTexts(im.allowed)
		every := []string{"1-65535"}
		p.Rules = append(p.Rules,
			Rule{ID: "allow-out/tcp", Addresses: list, Protocol: ProtocolTCP, Ports: every},
			Rule{ID: "allow-out/udp", Addresses: slices.Clone(list), Protocol: ProtocolUDP, Ports: every})
		im.note("allowOut", "DNS and QUIC stay closed at addresses too: the gate resolves names")
		if !im.denyAll {
			im.note("allowOut", "without \"0.0.0.0/0\" in denyOut this restricts nothing")
		}
	}
	if im.allowAll || p.Default == DefaultDeny {
		return // nothing is denied that is not closed anyway, or everything is
	}
	var left []netip.Prefix
	for _, d := range im.denied {
		left = append(left, without(d, im.allowed)...)
	}
	if len(left) > maxHosts {
		im.errs.addf("denyOut", "fewer, larger ranges", "with what allowOut takes out of it, it is %d ranges: %d are the most", len(left), maxHosts)
		return
	}
	if len(left) > 0 {
		p.Rules = append(p.Rules, Rule{ID: "deny-out", Action: ActionDeny, Addresses: prefixTexts(left)})
	}
}

// without is what remains of a range when others are taken out.
func without(p netip.Prefix, out []netip.Prefix) []netip.Prefix {
	var inside []netip.Prefix
	for _, o := range out {
		if o.Overlaps(p) {
			if o.Bits() <= p.Bits() {
				return nil
			}
			inside = append(inside, o)
		}
	}
	if len(inside) == 0 {
		return []netip.Prefix{p}
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	other, _ := netip.AddrFromSlice(b)
	return append(without(low, inside), without(netip.PrefixFrom(other, p.Bits()+1), inside)...)
}

func prefixTexts(list []netip.Prefix) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
		if p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return distinct(out)
}

// headers makes a rule for each name that headers are put in for.
func (im *e2bImport) headers(n E2BNetwork, p *Policy) {
	tooMany("rules", len(n.Rules), maxRules/2, im.errs)
	named := map[string]headerSecret{}
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		where := fmt.Sprintf("rules[%s]", quoted(host))
		name, wild, problem, hint := cleanPattern(host)
		if problem != "" {
			im.errs.add(where, problem, hint)
			continue
		}
		secrets := headerSecrets(host, n.Rules[host])
		if len(secrets) == 0 {
			continue
		}
		r := Rule{Hosts: []string{host}, Ports: []string{"443"}}
		for _, s := range secrets {
			if s.problem != "" {
				im.errs.add(where+"."+printable(s.Header), s.problem, s.hint)
			}
			// The value of one would go to the host of the other.
			if first, taken := named[s.Name]; taken && first.value != s.value {
				im.errs.addf(where+"."+printable(s.Header), "one of the two in a sandbox of its own", "as a secret it is %s, and so is that of another host", s.Name)
			}
			named[s.Name] = s
			r.Secrets = append(r.Secrets, s.Secret)
		}
		if !im.lets(p, name, wild) {
			im.note(where, "allowOut does not have it, so its headers are of no use")
			continue
		}
		p.Rules = append(p.Rules, r)
		im.note(where, "headers are put in over TLS alone, and a request that has another value there is refused instead of changed")
	}
}

// lets reports whether a name is let through by what was imported so far.
func (im *e2bImport) lets(p *Policy, name string, wild bool) bool {
	if p.Default == DefaultPublic {
		return true
	}
	return slices.ContainsFunc(im.hosts, func(h string) bool {
		have, haveWild, _, _ := cleanPattern(h)
		return have == name && haveWild == wild || haveWild && strings.HasSuffix(name, "."+have)
	})
}

// headerSecret is a header of a transform, as the secret that it becomes.
type headerSecret struct {
	Secret
	value         string
	problem, hint string
}

// Secrets are the values that the rules of FromE2B's policy put in, by the
// names that they have there. They are as secret as secrets are.
func (n E2BNetwork) Secrets() map[string]string {
	values := map[string]string{}
	for host, list := range n.Rules {
		for _, s := range headerSecrets(host, list) {
			values[s.Name] = s.value
		}
	}
	return values
}

// headerSecrets are those of one name, in the order of their headers; of one
// that is set more than once the last counts, as with E2B.
func headerSecrets(host string, list []E2BRule) []headerSecret {
	values := map[string]string{}
	for _, r := range list {
		if r.Transform != nil {
			maps.Copy(values, r.Transform.Headers)
		}
	}
	var out []headerSecret
	for _, header := range slices.Sorted(maps.Keys(values)) {
		s := headerSecret{Secret: Secret{Name: secretName(host, header), Header: header}, value: values[header]}
		if strings.EqualFold(header, "Authorization") {
			s.authorization()
		}
		if s.problem == "" && (s.value == "" || strings.ContainsFunc(s.value, func(r rune) bool { return r < ' ' || r == 0x7f })) {
			s.problem = "no value that a header can have"
		}
		out = append(out, s)
	}
	return out
}

// e2bSecret begins the names of the secrets that FromE2B makes.
const e2bSecret = "E2B_"

// IsE2BSecret reports whether FromE2B could have made a secret of that name.
func IsE2BSecret(name string) bool { return strings.HasPrefix(name, e2bSecret) }

// secretName makes a name of what the secret is for. Two may be the same, as
// those of a-b.example and a.b.example are: headers refuses that.
func secretName(host, header string) string {
	name := e2bSecret + strings.ToUpper(host+"_"+header)
	name = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 128)]
}

// authorization takes the scheme off a value, which a secret does not hold.
func (s *headerSecret) authorization() {
	scheme, value, _ := strings.Cut(s.value, " ")
	value = strings.TrimSpace(value)
	switch strings.ToLower(scheme) {
	case "bearer", "token":
		s.Scheme, s.value = scheme, value
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(value)
		user, word, ok := strings.Cut(string(plain), ":")
		if err != nil || !ok || user == "" {
			s.problem, s.hint = "is no Basic credential", "Basic, and base64 of user:password"
			return
		}
		s.Scheme, s.Username, s.value = scheme, user, word
	default:
		s.problem, s.hint = "has a scheme that can't be put in", "Bearer, Basic or token"
	}
}
