package policy

import "fmt"

// Bounds of a policy. They are far above what people write, and keep a
// policy that a program made from costing more than a sandbox does.
const (
	MaxRules   = 1000
	MaxHosts   = 1000    // of one rule; addresses too
	maxEntries = 20_000  // hosts, addresses and values in all
	maxMatches = 64      // of one rule, as in HTTPRoute
	maxValues  = 64      // methods, and paths, of one match
	maxFields  = 16      // headers, and parameters, of one match
	maxText    = 1024    // bytes of one value
	maxSecrets = 16      // of one rule
	maxRoots   = 1 << 18 // bytes of one rule's certificates
	maxTexts   = MaxSize // bytes of all texts: of rules that were added to others too
	maxPresets = 100
	maxDNS     = 16
	maxBytes   = 1 << 60
	maxRate    = 1_000_000
)

// tooManyHint says what to do about a rule that has too much.
const tooManyHint = "split it over several rules, or use a prefix or *.example.com"

// tooMany reports whether p has more of something than a policy may, and adds what. It
// only counts, so that a policy is refused for what it has before anything is built of it.
func tooMany(p *Policy, errs *Errors) bool {
	for _, c := range []struct {
		where   string
		n, most int
	}{
		{"presets", len(p.Presets), maxPresets},
		{"services", len(p.Services), MaxServices},
		{"dns.types", len(p.DNS.Types), maxDNS},
		{"dns.upstreams", len(p.DNS.Upstreams), maxDNS},
		{"rules", len(p.Rules), MaxRules},
	} {
		if errs.TooMany(c.where, c.n, c.most) {
			return true
		}
	}
	c := count{errs: errs}
	c.texts("", p.Presets...)
	c.texts("", p.Services...)
	for i := range p.Rules {
		c.rule(at("rules", i), &p.Rules[i])
	}
	if errs.TooMany("rules: hosts, addresses, ports and values", c.entries, maxEntries) {
		return true
	}
	if c.bytes > maxTexts {
		errs.Addf("rules", "leave out what is there twice, or make it prefixes", "%d bytes of hosts, values, certificates and other texts: %d are the most", c.bytes, maxTexts)
		return true
	}
	return c.found
}

// count is what a policy's rules have.
type count struct {
	entries, bytes int
	found          bool // a rule has too much
	errs           *Errors
}

func (c *count) rule(where string, r *Rule) {
	c.texts("", r.ID, r.Action, r.Protocol, r.Auth, r.Placeholders, r.Roots)
	if len(r.Roots) > maxRoots {
		c.found = true
		c.errs.Addf(where+".roots", "the authority's own alone", "%d bytes of certificates: %d are the most", len(r.Roots), maxRoots)
	}
	c.list(where+".hosts", r.Hosts, MaxHosts)
	c.list(where+".addresses", r.Addresses, MaxHosts)
	c.list(where+".ports", r.Ports, maxValues)
	c.most(where+".secrets", len(r.Secrets), maxSecrets)
	for i := range r.Secrets {
		s := &r.Secrets[i]
		c.texts(at(where+".secrets", i), s.Name, s.Header, s.Query, s.Body, s.Scheme, s.Username)
	}
	c.most(where+".matches", len(r.Matches), maxMatches)
	for i := range r.Matches {
		c.match(at(where+".matches", i), &r.Matches[i])
	}
}

func (c *count) match(where string, m *Match) {
	c.list(where+".methods", m.Methods, maxValues)
	c.most(where+".paths", len(m.Paths), maxValues)
	for i := range m.Paths {
		c.texts(at(where+".paths", i)+".value", m.Paths[i].Value)
	}
	c.fields(where+".headers", m.Headers)
	c.fields(where+".query", m.Query)
}

func (c *count) fields(where string, list []Field) {
	c.most(where, len(list), maxFields)
	for i := range list {
		c.texts(at(where, i)+".name", list[i].Name)
		c.texts(at(where, i)+".value", list[i].Value)
	}
}

func (c *count) list(where string, list []string, most int) {
	c.most(where, len(list), most)
	c.texts("", list...)
}

// most counts entries, of which there may be no more than most.
func (c *count) most(where string, n, most int) {
	c.entries += n
	if n > most {
		c.found = true
		c.errs.Addf(where, tooManyHint, "%d of them: %d are the most", n, most)
	}
}

// texts counts bytes; with a place, each text of its own is bounded too.
func (c *count) texts(where string, list ...string) {
	for _, s := range list {
		c.bytes += len(s)
		if where != "" && len(s) > maxText {
			c.found = true
			c.errs.Addf(where, "a prefix of it", "%d bytes: %d are the most", len(s), maxText)
		}
	}
}

func at(where string, i int) string { return fmt.Sprintf("%s[%d]", where, i) }
