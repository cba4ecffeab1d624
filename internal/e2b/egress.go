package e2b

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// egress is what E2B's API takes about the traffic that leaves a sandbox.
// Its other network options are about what comes in, and none of a policy's.
type egress struct {
	AllowInternetAccess *bool    `json:"allow_internet_access,omitempty"` // false: denyOut of everything
	AllowOut            []string `json:"allowOut,omitempty"`              // addresses, ranges, names and wildcards
	DenyOut             []string `json:"denyOut,omitempty"`               // addresses and ranges
	// Rules put headers into requests to a name. They allow nothing.
	Rules map[string][]headerRule `json:"rules,omitempty"`
	// EgressProxy is refused: the gate is the only way out.
	EgressProxy *socksProxy `json:"egressProxy,omitempty"`
}

// headerRule is one of E2B's rules about a name.
type headerRule struct {
	Transform *transform `json:"transform,omitempty"`
}

// transform is what a rule does to requests.
type transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// socksProxy is a SOCKS5 proxy.
type socksProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// fromEgress makes a policy of E2B's options, with their meaning: without any,
// the public internet; what is denied is taken away; what is allowed counts
// for more than what is denied; names are only of use where everything else
// is denied. Values of headers become secrets, which secrets gives. What can't
// be kept is an error that joins *Error, and what differs is a policy.Note.
func fromEgress(n egress) (policy.Policy, []policy.Note, error) {
	var errs policy.Errors
	im := egressImport{errs: &errs}
	im.split(n)
	if n.EgressProxy != nil {
		errs.Add("egressProxy", "no proxy can be put behind the gate", "leave it out")
	}
	p := policy.Policy{Version: policy.Version, Default: policy.DefaultPublic}
	if im.denyAll {
		p.Default = policy.DefaultDeny
	}
	if len(im.hosts) > 0 && !im.denyAll {
		errs.Add("allowOut", "names restrict nothing while everything else is allowed", "add \"0.0.0.0/0\" to denyOut")
	}
	if im.denyAll && im.allowAll {
		// What is allowed counts for more, so nothing of denyOut is left.
		p.Default = policy.DefaultPublic
	}
	im.destinations(&p)
	im.headers(n, &p)
	if err := errs.Err(); err != nil {
		return policy.Policy{}, nil, err
	}
	if _, err := policy.Compile(p, slices.Collect(maps.Keys(n.secrets()))); err != nil {
		return policy.Policy{}, nil, err
	}
	if p.Default == policy.DefaultPublic {
		im.note("network", "an address that is dialled by number, and that no name was resolved to, is refused unless allowOut has it")
	}
	return p, im.notes, nil
}

type egressImport struct {
	errs              *policy.Errors
	notes             []policy.Note
	allowAll, denyAll bool
	hosts             []string
	allowed, denied   []netip.Prefix
}

func (im *egressImport) note(where, text string) {
	im.notes = append(im.notes, policy.Note{Where: where, Text: text})
}

// split sorts the entries of both lists by what they are.
func (im *egressImport) split(n egress) {
	im.denyAll = n.AllowInternetAccess != nil && !*n.AllowInternetAccess
	im.errs.TooMany("allowOut", len(n.AllowOut), policy.MaxHosts)
	im.errs.TooMany("denyOut", len(n.DenyOut), policy.MaxHosts)
	for i, s := range n.AllowOut {
		prefix, problem, hint := policy.ParsePrefix(s)
		_, _, notName, _ := policy.ParseHost(s)
		switch {
		case problem == "" && prefix.Bits() == 0:
			im.allowAll = true
		case problem == "":
			im.allowed = append(im.allowed, prefix)
		case prefix.IsValid():
			im.errs.Add(fmt.Sprintf("allowOut[%d]", i), problem, hint)
		case notName != "":
			im.errs.Add(fmt.Sprintf("allowOut[%d]", i), notName, "a name, *.example.com, an address or a range")
		default:
			im.hosts = append(im.hosts, s)
		}
	}
	for i, s := range n.DenyOut {
		prefix, problem, hint := policy.ParsePrefix(s)
		switch {
		case problem == "" && prefix.Bits() == 0:
			im.denyAll = true
		case problem == "":
			im.denied = append(im.denied, prefix)
		case prefix.IsValid():
			im.errs.Add(fmt.Sprintf("denyOut[%d]", i), problem, hint)
		default:
			im.errs.Add(fmt.Sprintf("denyOut[%d]", i), problem, "names can't be denied: deny \"0.0.0.0/0\", and allow those that are wanted")
		}
	}
}

// destinations makes the rules about what may be reached.
func (im *egressImport) destinations(p *policy.Policy) {
	if len(im.hosts) > 0 {
		p.Rules = append(p.Rules, policy.Rule{ID: "allow-out/names", Hosts: im.hosts})
		im.note("allowOut", "names are for HTTP and TLS on ports 443 and 80, and TLS to them is intercepted")
	}
	if len(im.allowed) > 0 {
		list := prefixTexts(im.allowed)
		every := []string{"1-65535"}
		p.Rules = append(p.Rules,
			policy.Rule{ID: "allow-out/tcp", Addresses: list, Protocol: policy.ProtocolTCP, Ports: every},
			policy.Rule{ID: "allow-out/udp", Addresses: slices.Clone(list), Protocol: policy.ProtocolUDP, Ports: every})
		im.note("allowOut", "DNS and QUIC stay closed at addresses too: the gate resolves names")
		if !im.denyAll {
			im.note("allowOut", "without \"0.0.0.0/0\" in denyOut this restricts nothing")
		}
	}
	if im.allowAll || p.Default == policy.DefaultDeny {
		return // nothing is denied that is not closed anyway, or everything is
	}
	var left []netip.Prefix
	for _, d := range im.denied {
		left = append(left, without(d, im.allowed)...)
	}
	if len(left) > policy.MaxHosts {
		im.errs.Addf("denyOut", "fewer, larger ranges", "with what allowOut takes out of it, it is %d ranges: %d are the most", len(left), policy.MaxHosts)
		return
	}
	if len(left) > 0 {
		p.Rules = append(p.Rules, policy.Rule{ID: "deny-out", Action: policy.ActionDeny, Addresses: prefixTexts(left)})
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

// distinct is a list without what is in it already.
func distinct(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool { was := seen[s]; seen[s] = true; return was })
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
func (im *egressImport) headers(n egress, p *policy.Policy) {
	im.errs.TooMany("rules", len(n.Rules), policy.MaxRules/2)
	named := map[string]headerSecret{}
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		where := fmt.Sprintf("rules[%s]", policy.Quoted(host))
		name, wild, problem, hint := policy.ParseHost(host)
		if problem != "" {
			im.errs.Add(where, problem, hint)
			continue
		}
		secrets := headerSecrets(host, n.Rules[host])
		if len(secrets) == 0 {
			continue
		}
		r := policy.Rule{Hosts: []string{host}, Ports: []string{"443"}}
		for _, s := range secrets {
			if s.problem != "" {
				im.errs.Add(where+"."+policy.Printable(s.Header), s.problem, s.hint)
			}
			// The value of one would go to the host of the other.
			if first, taken := named[s.Name]; taken && first.value != s.value {
				im.errs.Addf(where+"."+policy.Printable(s.Header), "one of the two in a sandbox of its own", "as a secret it is %s, and so is that of another host", s.Name)
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
func (im *egressImport) lets(p *policy.Policy, name string, wild bool) bool {
	if p.Default == policy.DefaultPublic {
		return true
	}
	return slices.ContainsFunc(im.hosts, func(h string) bool {
		have, haveWild, _, _ := policy.ParseHost(h)
		return have == name && haveWild == wild || haveWild && strings.HasSuffix(name, "."+have)
	})
}

// headerSecret is a header of a transform, as the secret that it becomes.
type headerSecret struct {
	policy.Secret
	value         string
	problem, hint string
}

// secrets are the values that the rules of fromEgress's policy put in, by the
// names that they have there. They are as secret as secrets are.
func (n egress) secrets() map[string]string {
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
func headerSecrets(host string, list []headerRule) []headerSecret {
	values := map[string]string{}
	for _, r := range list {
		if r.Transform != nil {
			maps.Copy(values, r.Transform.Headers)
		}
	}
	var out []headerSecret
	for _, header := range slices.Sorted(maps.Keys(values)) {
		s := headerSecret{Secret: policy.Secret{Name: headerSecretName(host, header), Header: header}, value: values[header]}
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

// headerSecretPrefix begins the names of the secrets that fromEgress makes.
const headerSecretPrefix = "E2B_"

// isHeaderSecret reports whether fromEgress could have made a secret of that name.
func isHeaderSecret(name string) bool { return strings.HasPrefix(name, headerSecretPrefix) }

// headerSecretName makes a name of what the secret is for. Two may be the same, as
// those of a-b.example and a.b.example are: headers refuses that.
func headerSecretName(host, header string) string {
	name := headerSecretPrefix + strings.ToUpper(host+"_"+header)
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

// shownSecret is what stands for the value of a header: it can't be read again.
const shownSecret = "[secret]"

// toEgress says in E2B's words what a policy that fromEgress made lets through.
// Values of headers are not told. Of another policy it says what can be said:
// the hosts and addresses that its rules name.
func toEgress(p policy.Policy) egress {
	var n egress
	if !policy.Public(p.Default) {
		n.DenyOut = append(n.DenyOut, "0.0.0.0/0")
	}
	for _, r := range p.Rules {
		switch {
		case len(r.Secrets) > 0:
			n.addHeaders(r)
		case r.Action == policy.ActionDeny:
			n.DenyOut = append(n.DenyOut, r.Addresses...)
		case r.Action == policy.ActionAsk: // E2B has no word for it
		case r.Protocol == policy.ProtocolUDP: // the rule for TCP says the same
		default:
			n.AllowOut = append(append(n.AllowOut, r.Hosts...), r.Addresses...)
		}
	}
	n.AllowOut, n.DenyOut = distinct(n.AllowOut), distinct(n.DenyOut)
	return n
}

func (n *egress) addHeaders(r policy.Rule) {
	if n.Rules == nil {
		n.Rules = map[string][]headerRule{}
	}
	headers := map[string]string{}
	for _, s := range r.Secrets {
		if s.Header != "" {
			headers[s.Header] = shownSecret
		}
	}
	for _, h := range r.Hosts {
		n.Rules[h] = append(n.Rules[h], headerRule{Transform: &transform{Headers: headers}})
	}
}
