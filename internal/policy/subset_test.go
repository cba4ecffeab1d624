package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// narrowed draws a rule that is likely to lie within r.
func narrowed(t *rapid.T, r policy.Rule, id string) policy.Rule {
	r.ID = id
	if len(r.Hosts) > 0 && rapid.Bool().Draw(t, "other host") {
		r.Hosts = []string{pick(t, someHosts, "narrow host")}
	}
	if len(r.Addresses) > 0 && rapid.Bool().Draw(t, "other address") {
		r.Addresses = []string{pick(t, someNets, "narrow address")}
	}
	if r.Protocol == "http" && rapid.Bool().Draw(t, "more matches") {
		r.Matches = append(slices.Clone(r.Matches), drawMatch(t))
	}
	if rapid.IntRange(0, 3).Draw(t, "other demands") == 0 {
		r.Secrets, r.Limits = nil, policy.Limits{}
		demand(t, &r)
	}
	if rapid.Bool().Draw(t, "one port") {
		r.Ports = []string{pick(t, []string{"22", "443", "5432", "53"}, "narrow port")}
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") == 0 && r.Action == "" {
		r.Action = policy.ActionAsk
	}
	return r
}

// demand has a rule ask for something of what it lets through.
func demand(t *rapid.T, r *policy.Rule) {
	if r.Action == policy.ActionDeny {
		return
	}
	if r.Protocol == "http" && len(r.Hosts) > 0 && rapid.IntRange(0, 2).Draw(t, "secret?") == 0 {
		r.Secrets = []policy.Secret{{Name: pick(t, []string{"T", "U"}, "secret"), Header: "X-Api-Key"}}
	}
	if rapid.IntRange(0, 2).Draw(t, "limit?") == 0 {
		r.Limits.RequestBytes = int64(rapid.IntRange(1, 2).Draw(t, "limit"))
	}
}

// demands tells what a verdict asks for that another one does not; "" for nothing.
func demands(of, by policy.Verdict) string {
	var o, b policy.Route
	if of.Route != nil {
		o = *of.Route
	}
	if by.Route != nil {
		b = *by.Route
	}
	for _, s := range o.Secrets {
		if !slices.Contains(b.Secrets, s) {
			return "the secret " + s.Name
		}
	}
	if n := o.Limits.RequestBytes; n > 0 && (b.Limits.RequestBytes == 0 || b.Limits.RequestBytes > n) {
		return "a limit"
	}
	return ""
}

// flows asks a set about a name and an address, and follows a connection to its end as the
// gate does: connect, sniff, read.
func flows(t *rapid.T) func(*policy.Set) []policy.Verdict {
	name, addr := pick(t, someNames, "name"), netip.MustParseAddr(pick(t, someAddrs, "addr"))
	c := policy.Conn{UDP: rapid.Bool().Draw(t, "udp"), Addr: netip.AddrPortFrom(addr, pick(t, somePorts, "asked port")), Names: []string{name}}
	if rapid.Bool().Draw(t, "by number") {
		c.Names = nil
	}
	said := pick(t, []string{name, name, "", "b.example"}, "said")
	tls := rapid.Bool().Draw(t, "tls")
	r := ask(nopTB{}, pick(t, []string{"GET", "POST", "PUT"}, "asked method"), "https://host.example"+pick(t, somePaths, "asked path"), "192.0.2.1")
	r.Addr, r.Name, r.TLS = c.Addr, said, tls
	return func(s *policy.Set) []policy.Verdict {
		v := s.Connect(c)
		if v.Mode == policy.ModeSniff {
			v = s.Stream(policy.Stream{Conn: c, Name: said, TLS: tls})
		}
		if v.Mode == policy.ModeInspect {
			v = s.Request(r)
		}
		return []policy.Verdict{s.Name(name), s.Address(addr), v}
	}
}

// TestSubsetHolds: of what was proved to lie within another policy, nothing is let
// through that the other refuses, and nobody is passed over who would be asked there.
func TestSubsetHolds(t *testing.T) {
	proved, given := 0, []string{"T", "U"}
	rapid.Check(t, func(t *rapid.T) {
		wide := drawPolicy(t)
		for i := range wide.Rules {
			if wide.Rules[i].Action == "" && rapid.IntRange(0, 4).Draw(t, "ask?") == 0 {
				wide.Rules[i].Action = policy.ActionAsk
			}
		}
		for i := range wide.Rules {
			demand(t, &wide.Rules[i])
		}
		narrow := policy.Policy{Default: pick(t, []policy.Default{"deny", "deny", wide.Default}, "narrow default")}
		for i, r := range wide.Rules {
			if rapid.Bool().Draw(t, "keep") {
				if r.Action != policy.ActionDeny {
					r = narrowed(t, r, fmt.Sprintf("n%d", i))
				}
				narrow.Rules = append(narrow.Rules, r)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "turned around") == 0 {
			slices.Reverse(narrow.Rules)
		}
		if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
			narrow.Rules = append(narrow.Rules, drawRule(t, "another"))
		}
		if _, err := policy.Compile(narrow, given); err != nil {
			t.Skip("no policy") // such as a tcp port of http's
		}
		narrow, err := policy.Within(narrow, wide, given)
		if err != nil {
			return
		}
		proved++
		n, err1 := policy.Compile(narrow, given)
		w, err2 := policy.Compile(wide, given)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for range 8 {
			q := flows(t)
			in, out := q(n), q(w)
			for i := range in {
				if in[i].Allowed() && !out[i].Allowed() {
					t.Fatalf("question %d: narrow %+v, wide %+v\nnarrow %+v\nwide %+v", i, in[i], out[i], narrow, wide)
				}
				if what := demands(out[i], in[i]); i == len(in)-1 && in[i].Allowed() && what != "" {
					t.Fatalf("question %d: past %s: narrow %+v, wide %+v\nnarrow %+v\nwide %+v", i, what, in[i], out[i], narrow, wide)
				}
				if i == len(in)-1 && in[i].Allowed() && in[i].Route != nil && slices.ContainsFunc(in[i].Route.Secrets, func(s policy.Secret) bool {
					return out[i].Route == nil || !slices.Contains(out[i].Route.Secrets, s)
				}) {
					t.Fatalf("question %d: a secret more: narrow %+v, wide %+v\nnarrow %+v\nwide %+v", i, in[i], out[i], narrow, wide)
				}
				if in[i].Allowed() && !in[i].Ask && out[i].Ask {
					t.Fatalf("question %d: nobody is asked: narrow %+v, wide %+v\nnarrow %+v\nwide %+v", i, in[i], out[i], narrow, wide)
				}
			}
		}
	})
	t.Logf("%d proved", proved)
	if proved == 0 {
		t.Error("nothing was proved")
	}
}

// TestSubsetOfItself: every policy lies within itself, presets too.
func TestSubsetOfItself(t *testing.T) {
	for _, p := range policy.Presets() {
		one := policy.Policy{Presets: []string{p.Name}}
		if err := policy.Subset(one, one, nil); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if err := policy.Subset(one, policy.Policy{Presets: []string{"npm", p.Name, "github"}}, nil); err != nil {
			t.Errorf("%s beside others: %v", p.Name, err)
		}
		if err := policy.Subset(one, policy.Policy{}, nil); err == nil {
			t.Errorf("%s lies within nothing", p.Name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if err := policy.Subset(p, p, nil); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
	})
}

func listed(texts ...string) string { return "rules:\n- " + strings.Join(texts, "\n- ") }

func TestSubset(t *testing.T) {
	const token = "secrets: [{name: T, header: Authorization}]"
	for _, c := range []struct{ name, narrow, wide, problem string }{
		{"a name below a wildcard", listed(`{hosts: [a.x.example]}`), listed(`{hosts: ["*.x.example"]}`), ""},
		{"the wildcard's own name", listed(`{hosts: [x.example]}`), listed(`{hosts: ["*.x.example"]}`), "no rule of the wider policy allows all that rule-1 does"},
		{"a longer path", listed(`{hosts: [a.example], matches: [{methods: [GET], paths: [{value: /v1/a}]}]}`), listed(`{hosts: [a.example], matches: [{paths: [{value: /v1}]}]}`), ""},
		{"another method", listed(`{hosts: [a.example], matches: [{methods: [PUT]}]}`), listed(`{hosts: [a.example], matches: [{methods: [GET]}]}`), "no rule"},
		{"no match", listed(`{hosts: [a.example]}`), listed(`{hosts: [a.example], matches: [{methods: [GET]}]}`), "no rule"},
		{"another port", listed(`{hosts: [a.example], ports: [8443]}`), listed(`{hosts: [a.example]}`), "no rule"},
		{"unread", listed(`{hosts: [a.example], protocol: tls}`), listed(`{hosts: [a.example]}`), "no rule"},
		{"nobody is asked", listed(`{hosts: [a.example]}`), listed(`{hosts: [a.example], action: ask}`), "no rule"},
		{"somebody is asked", listed(`{hosts: [a.example], action: ask}`), listed(`{hosts: [a.example]}`), ""},
		{"without its secret", listed(`{hosts: [a.example]}`), listed(`{hosts: [a.example], ` + token + `}`), "no rule"},
		{"a secret elsewhere", listed(`{hosts: [a.example], ` + token + `}`), listed(`{hosts: [a.example]}`, `{hosts: [b.example], `+token+`}`), "no rule"},
		{"a secret at another place", listed(`{hosts: [a.example], secrets: [{name: T, header: X-Api-Key}]}`), listed(`{hosts: [a.example], ` + token + `}`), "no rule"},
		{"a secret without asking", listed(`{hosts: [a.example], ` + token + `}`), listed(`{hosts: [a.example], secrets: [{name: T, header: Authorization, ask: true}]}`), "no rule"},
		{"a secret that is asked for", listed(`{hosts: [a.example], secrets: [{name: T, header: Authorization, ask: true}]}`), listed(`{hosts: [a.example], ` + token + `}`), ""},
		{"a secret under public", listed(`{hosts: [a.example.com], ` + token + `}`), "default: public\n" + listed(`{hosts: [b.example.com], `+token+`}`), "no rule"},
		{"credentials of its own", listed(`{hosts: [a.example], ` + token + `, auth: guest}`), listed(`{hosts: [a.example], ` + token + `}`), "no rule"},
		{"placeholders", listed(`{hosts: [a.example], placeholders: pass}`), listed(`{hosts: [a.example]}`), "no rule"},
		{"another expression", listed(`{hosts: [a.example], matches: [{paths: [{type: regex, value: "/v2/.*"}]}]}`), listed(`{hosts: [a.example], matches: [{paths: [{value: /v1}]}]}`), "no rule"},
		{"any expression below all", listed(`{hosts: [a.example], matches: [{paths: [{type: regex, value: "/v2/.*"}]}]}`), listed(`{hosts: [a.example], matches: [{paths: [{value: /}]}]}`), ""},
		{"a field left out", listed(`{hosts: [a.example], matches: [{methods: [GET]}]}`), listed(`{hosts: [a.example], matches: [{methods: [GET], headers: [{name: X-A, value: b}]}]}`), "no rule"},
		{"a parameter of another value", listed(`{hosts: [a.example], matches: [{query: [{name: a, value: c}]}]}`), listed(`{hosts: [a.example], matches: [{query: [{name: a, type: regex, value: "b+"}]}]}`), "no rule"},
		{"a parameter of that form", listed(`{hosts: [a.example], matches: [{query: [{name: a, value: bb}]}]}`), listed(`{hosts: [a.example], matches: [{query: [{name: a, type: regex, value: "b+"}]}]}`), ""},
		{"bytes under public", listed(`{hosts: [a.example.com], protocol: tcp, ports: [22]}`), "default: public", "no rule"},
		{"DNS under public", listed(`{hosts: [a.example.com], ports: ["50-60"]}`), "default: public", "no rule"},
		{"by address past a name", listed(`{addresses: [192.0.2.1]}`), listed(`{addresses: [192.0.2.1]}`, `{hosts: [a.example], matches: [{methods: [GET]}]}`), "a rule of the wider policy is about a.example"},
		{"by address past a name's own rule", listed(`{hosts: [a.example], addresses: [192.0.2.1], protocol: tls}`), listed(`{hosts: [a.example], protocol: tcp, ports: [5432]}`, `{hosts: [a.example], addresses: [192.0.2.1], protocol: tls}`), "a rule of the wider policy is about a.example"},
		{"more questions", "dns: {queries_per_minute: 900}", "rules: []", "900 of them, where the wider policy has 600"},
		{"past a secret", listed(`{hosts: [a.x.example]}`), listed(`{hosts: ["*.x.example"]}`, `{hosts: [a.x.example], `+token+`}`), "it is about what rule rule-2 of the wider policy has secrets"},
		{"past a limit", listed(`{hosts: [a.x.example]}`), listed(`{hosts: ["*.x.example"]}`, `{hosts: [a.x.example], limits: {bytes: 10}}`), "it is about what rule rule-2"},
		{"unread where it is read", listed(`{hosts: [a.x.example], protocol: tcp, ports: [22]}`), listed(`{hosts: ["*.x.example"], protocol: tcp, ports: [22]}`, `{hosts: ["*.x.example"], ports: [22], matches: [{methods: [GET]}]}`), "it is about what the wider policy reads by its rule rule-2"},
		{"a lower limit", listed(`{hosts: [a.example], limits: {bytes: 5}}`), listed(`{hosts: [a.example], limits: {bytes: 10}}`), ""},
		{"a limit twice", listed(`{hosts: [a.x.example], limits: {bytes: 10}}`, `{hosts: [b.x.example], limits: {bytes: 10}}`, `{hosts: ["*.x.example"], limits: {bytes: 10}}`), listed(`{hosts: ["*.x.example"], limits: {bytes: 10}}`), "several rules would share"},
		{"one address of a range", listed(`{addresses: [10.0.0.5]}`), listed(`{addresses: [10.0.0.0/8]}`), "no rule"},
		{"a private range of all", listed(`{addresses: [10.0.0.0/8]}`), listed(`{addresses: [0.0.0.0/0]}`), "no rule"},
		{"a part of a range", listed(`{addresses: [10.1.0.0/16]}`), listed(`{addresses: [10.0.0.0/8]}`), ""},
		{"DNS's own port", listed(`{hosts: [a.example], protocol: tcp, ports: [53]}`), listed(`{hosts: [a.example], protocol: tcp, ports: ["1-100"]}`), "no rule"},
		{"a service", "services: [docs]", "services: [other]", `the wider policy has no service "docs"`},
		{"a name under public", listed(`{hosts: [a.example.com]}`), "default: public", ""},
		{"a resolver under public", listed(`{hosts: [dns.google]}`), "default: public", "no rule"},
		{"governed under public", listed(`{hosts: [a.example.com]}`), "default: public\n" + listed(`{hosts: [a.example.com], matches: [{methods: [GET]}]}`), "no rule"},
		{"public under deny", "default: public", listed(`{hosts: [a.example]}`), "public, where the wider policy has deny"},
		{"a denial is taken along", listed(`{hosts: [a.x.example]}`), listed(`{hosts: ["*.x.example"]}`, `{hosts: [b.x.example], action: deny}`), ""},
		{"a secret where a closer rule has none", listed(`{hosts: [logs.x.example], ` + token + `}`), listed(`{hosts: ["*.x.example"], `+token+`}`, `{hosts: [logs.x.example]}`), "it is about what rule rule-2"},
		{"a copy where a closer rule has none", listed(`{hosts: ["*.x.example"], ` + token + `}`), listed(`{hosts: ["*.x.example"], `+token+`}`, `{hosts: [logs.x.example]}`), "it is about what rule rule-2"},
		{"a secret on a path without", listed(`{hosts: [a.example], matches: [{paths: [{value: /api/public}]}], ` + token + `}`), listed(`{hosts: [a.example], matches: [{paths: [{value: /api}]}], `+token+`}`, `{hosts: [a.example], matches: [{paths: [{value: /api/public}]}]}`), "it is about what rule rule-2"},
		{"turned around", listed(`{hosts: [a.example]}`, `{hosts: [a.example], limits: {requests_per_minute: 1}}`), listed(`{hosts: [a.example], limits: {requests_per_minute: 1}}`, `{hosts: [a.example]}`), "of the wider policy has secrets, limits"},
		{"in its order", listed(`{hosts: [a.example], limits: {requests_per_minute: 1}}`, `{hosts: [a.example]}`), listed(`{hosts: [a.example], limits: {requests_per_minute: 1}}`, `{hosts: [a.example]}`), ""},
		{"unread under public-read", listed(`{hosts: [a.example.com], protocol: tls}`), "default: public-read", "no rule"},
		{"unread under public", listed(`{hosts: [a.example.com], protocol: tls}`), "default: public", "no rule"},
		{"written under public-read", listed(`{hosts: [a.example.com]}`), "default: public-read", "no rule"},
		{"past an address under public", listed(`{hosts: [a.example.com]}`), "default: public\n" + listed(`{addresses: [93.184.0.0/16], matches: [{methods: [GET]}]}`), "no rule"},
		{"past asking for an address", listed(`{hosts: [a.example.com]}`), "default: public\n" + listed(`{addresses: [93.184.0.0/16], action: ask}`), "no rule"},
		{"unread where an address is read", listed(`{hosts: [a.example], protocol: tcp, ports: [80]}`), listed(`{hosts: [a.example], protocol: tcp, ports: [80]}`, `{addresses: [93.184.216.34], limits: {request_bytes: 2}}`), "would pass on more of it unread"},
		{"another resolver", "dns: {upstreams: [192.0.2.1]}", "rules: []", "the wider policy asks other resolvers"},
	} {
		narrow, err := policy.Parse([]byte(c.narrow))
		if err != nil {
			t.Fatal(c.name, err)
		}
		wide, err := policy.Parse([]byte(c.wide))
		if err != nil {
			t.Fatal(c.name, err)
		}
		_, err = policy.Within(narrow, wide, []string{"T"})
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.problem)
		}
	}
}

// TestSubsetOfDenials: what is not taken along is told, and roots of one's own are.
func TestSubsetOfDenials(t *testing.T) {
	allow := policy.Rule{Hosts: []string{"*.x.example"}}
	wide := policy.Policy{Rules: []policy.Rule{allow, {ID: "no", Hosts: []string{"b.x.example"}, Action: policy.ActionDeny}}}
	if err := policy.Subset(policy.Policy{Rules: []policy.Rule{allow}}, wide, nil); err == nil || !strings.Contains(err.Error(), "the wider policy denies by its rule no") {
		t.Errorf("got %v", err)
	}
	named := policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example.com"}}}}
	if err := policy.Subset(named, policy.Policy{Default: policy.DefaultPublic}, nil); err == nil {
		t.Error("a name may lead to a resolver, which the default refuses")
	}
	rooted := allow
	rooted.Roots = certificate(t)
	if err := policy.Subset(policy.Policy{Rules: []policy.Rule{rooted}}, policy.Policy{Rules: []policy.Rule{allow}}, nil); err == nil {
		t.Error("roots of its own are taken")
	}
}
