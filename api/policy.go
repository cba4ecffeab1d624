package api

// Policy says what one sandbox may reach: see docs/policy.md. The zero value
// refuses everything. The daemon reads YAML as well as JSON, and refuses a field
// that it does not know.
type Policy struct {
	Version int    `json:"version,omitempty"` // 1, also where it is left out
	Default string `json:"default,omitempty"` // what no rule is about: "deny" (default), "public", or "public-read": the same, and its TLS is read
	// Presets are names of presets, whose rules stand behind Rules.
	Presets []string     `json:"presets,omitempty"`
	Rules   []PolicyRule `json:"rules,omitempty"`
	// Services are names of programs outside that the sandbox may call, at
	// http://gate.carboy.internal/NAME/: see docs/gate-services.md.
	Services []string  `json:"services,omitempty"`
	DNS      PolicyDNS `json:"dns,omitzero"`
	Ask      PolicyAsk `json:"ask,omitzero"` // of what is asked
}

// PolicyRule is about destinations: Hosts and Addresses, of which it needs one.
type PolicyRule struct {
	ID     string `json:"id,omitempty"`     // unique, [a-z0-9][a-z0-9._:/-]{0,63}; "" is rule-N, N its place from 1 on
	Action string `json:"action,omitempty"` // "allow" (default), "ask" or "deny"
	// Hosts are names: exact, or with "*" for one whole first label or more
	// ("*.example.com" matches a.example.com and a.b.example.com, and not
	// example.com). Lower case, IDNA's ASCII form once compiled.
	Hosts []string `json:"hosts,omitempty"`
	// Addresses are IP addresses and CIDR ranges. Only they open what is not
	// public, and a range only what it lies within: 10.1.0.0/16 opens private
	// addresses, 0.0.0.0/0 none. They are destinations of their own, dialled by
	// number, unless the rule puts a secret in: then they are where its hosts
	// may be.
	Addresses []string `json:"addresses,omitempty"`
	// Ports are numbers and ranges, "8000-8099". Empty: 443 and 80 for HTTP,
	// 443 for "tls", every one for "deny", and an error for others.
	// DNS's 53 and 853, and with UDP 443 and 80, are open only where a rule for
	// "tcp" or "udp" has the very number.
	Ports []string `json:"ports,omitempty"`
	// Protocol is "http", "tls", "tcp" or "udp". Where it is "" it is "http", but
	// for "deny" without Matches: there it is every one.
	Protocol string `json:"protocol,omitempty"`

	// What follows is for "http" alone.

	// Matches select requests: one of them must match whole. None: every
	// request does. For "deny" doubt is enough: a path that could be read
	// in two ways is refused.
	Matches []PolicyMatch `json:"matches,omitempty"`
	// Secrets are put into requests over TLS alone; a request in the clear does
	// not match a rule that has one.
	Secrets []PolicySecret `json:"secrets,omitempty"`
	// Auth says what becomes of credentials of the guest's own, where the rule
	// has Secrets: "" refuses them, "guest" lets them through.
	Auth string `json:"auth,omitempty"`
	// Placeholders says what becomes of placeholders, of any secret, in the
	// bodies and messages that the guest sends and that are no Secret's place:
	// "" refuses them, "pass" sends them on as they are.
	Placeholders string `json:"placeholders,omitempty"`
	// Roots are the PEM certificates that an upstream may be signed by, instead
	// of the machine's.
	Roots string `json:"roots,omitempty"`

	Limits PolicyLimits `json:"limits,omitzero"`
}

// PolicyMatch is one alternative, in the words of Kubernetes' HTTPRoute: of all
// that it names, each must hold. Fields in which a request names another method
// or path for itself, such as X-HTTP-Method-Override, count as what they name.
type PolicyMatch struct {
	Methods []string      `json:"methods,omitempty"` // any of them; upper case once compiled
	Paths   []PolicyValue `json:"paths,omitempty"`   // any of them; the path alone, decoded once and cleaned
	Headers []PolicyField `json:"headers,omitempty"` // each of them
	Query   []PolicyField `json:"query,omitempty"`   // each of them
}

// PolicyValue is a text to compare with.
type PolicyValue struct {
	Type  string `json:"type,omitempty"` // "exact", "prefix" (default) or "regex"
	Value string `json:"value"`
}

// PolicyField is a header or a query parameter, and the value that it must have.
type PolicyField struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitempty"` // "exact" (default), "prefix" or "regex"
	Value string `json:"value"`
}

// PolicySecret is where on a route a secret goes: exactly one of Header, Query and
// Body. The guest holds its placeholder, or nothing.
type PolicySecret struct {
	Name string `json:"name"` // of the store
	// Header is the field's name. With Authorization, Scheme is "Bearer",
	// "Basic" or "token", and "Bearer" where there is none; any other field has
	// the value alone unless there is a Scheme.
	Header   string `json:"header,omitempty"`
	Scheme   string `json:"scheme,omitempty"`
	Username string `json:"username,omitempty"` // for Basic; "x-access-token" where there is none
	Query    string `json:"query,omitempty"`    // a parameter, whose value must be the placeholder
	Body     string `json:"body,omitempty"`     // a JSON pointer or a form field's name, whose value must be the placeholder
	// Optional: the rule stands without it when the sandbox was not given the
	// secret. Presets are so.
	Optional bool `json:"optional,omitempty"`
	// Ask: a person is asked before it is put into a request.
	Ask bool `json:"ask,omitempty"`
}

// PolicyAsk is about what a person is asked: requests and connections of rules
// whose Action is "ask", and secrets with Ask.
type PolicyAsk struct {
	// Timeout is how long an answer is waited for, "120s"; "": 300 s.
	Timeout string `json:"timeout,omitempty"`
}

// PolicyLimits bound what goes through one rule; 0 is no bound.
type PolicyLimits struct {
	RequestBytes      int64 `json:"request_bytes,omitempty"`       // of one request's body, or sent on one connection
	ResponseBytes     int64 `json:"response_bytes,omitempty"`      // of one response's body, or received on one connection
	RequestsPerMinute int   `json:"requests_per_minute,omitempty"` // requests, or connections, begun
	Bytes             int64 `json:"bytes,omitempty"`               // of all, both ways, in the life of the gate
}

// PolicyDNS is what the gate's resolver does beyond addresses.
type PolicyDNS struct {
	// Types are asked for upstream beside A and AAAA: CNAME, TXT, MX, SRV, NS,
	// PTR, SOA, CAA, NAPTR.
	Types []string `json:"types,omitempty"`
	// Upstreams are "ADDRESS" or "ADDRESS:PORT"; none: the machine's own.
	Upstreams []string `json:"upstreams,omitempty"`
	// QueriesPerMinute bounds what is asked; 0: 600.
	QueriesPerMinute int `json:"queries_per_minute,omitempty"`
}

// PolicyTestRequest is the body of POST /v1/sandboxes/{id}/policy/test.
type PolicyTestRequest struct {
	// Request is "METHOD URL", "tcp://HOST:PORT", "udp://HOST:PORT",
	// "tls://HOST[:PORT]" or "dns:NAME".
	Request string `json:"request"`
	// Address is where the name is taken to lead; absent: to a public address.
	Address string `json:"address,omitempty"`
}

// PolicyVerdict is the answer to it: what would become of the request, and
// which rule decides. Nothing is resolved or sent for it.
type PolicyVerdict struct {
	Request string       `json:"request"`
	Allowed bool         `json:"allowed"`
	Ask     bool         `json:"ask,omitempty"`  // a person would be asked, and Allowed is false until one has answered
	Code    string       `json:"code,omitempty"` // why it is refused
	Rule    string       `json:"rule,omitempty"` // the rule that decides
	Reason  string       `json:"reason,omitempty"`
	Hint    string       `json:"hint,omitempty"`    // what would allow it
	Note    string       `json:"note,omitempty"`    // where the answer does not hold
	Secrets []string     `json:"secrets,omitempty"` // names of those that would be put in
	Steps   []PolicyStep `json:"steps,omitempty"`   // each decision on the way, in order
}

// PolicyStep is one decision on the way of a request.
type PolicyStep struct {
	Question string `json:"question"` // "connect to api.example.com:443"
	Mode     string `json:"mode"`     // "refuse", "relay", "sniff", "passthrough", "inspect", "ask" or "allow"
	Code     string `json:"code,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// PolicyPreset is a set of rules with a name, which --allow takes. GET
// /v1/policy/presets lists them.
type PolicyPreset struct {
	Name    string       `json:"name"`
	Summary string       `json:"summary"`
	Opens   []string     `json:"opens"` // a line for each rule
	Secrets []string     `json:"secrets,omitempty"`
	Rules   []PolicyRule `json:"rules"`
}
