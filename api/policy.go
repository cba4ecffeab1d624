package api

// Policy says what one sandbox may reach: see docs/policy.md. The daemon reads
// YAML as well as JSON, and refuses a field that it does not know.
type Policy struct {
	Version int          `json:"version,omitempty"` // 1, also where it is left out
	Default string       `json:"default,omitempty"` // what no rule is about: "deny" (default) or "public"
	Presets []string     `json:"presets,omitempty"` // names of presets, whose rules stand behind Rules
	Rules   []PolicyRule `json:"rules,omitempty"`
	DNS     PolicyDNS    `json:"dns,omitzero"`
}

// PolicyRule is about destinations. It needs one of Hosts and Addresses.
type PolicyRule struct {
	ID           string         `json:"id,omitempty"`        // default: "rule-N", N its place from 1 on
	Action       string         `json:"action,omitempty"`    // "allow" (default) or "deny"
	Hosts        []string       `json:"hosts,omitempty"`     // names, or "*." and a name
	Addresses    []string       `json:"addresses,omitempty"` // addresses and CIDR ranges
	Ports        []string       `json:"ports,omitempty"`     // "443", "8000-8099"; default 443 and 80
	Protocol     string         `json:"protocol,omitempty"`  // "http" (default), "tls", "tcp" or "udp"
	Matches      []PolicyMatch  `json:"matches,omitempty"`   // one of them must match; none: every request does
	Secrets      []PolicySecret `json:"secrets,omitempty"`
	Auth         string         `json:"auth,omitempty"`         // "guest": credentials of the guest's own pass beside Secrets
	Placeholders string         `json:"placeholders,omitempty"` // "pass": secrets' placeholders go on in bodies and messages, as they are
	Roots        string         `json:"roots,omitempty"`        // PEM certificates to trust in place of the machine's
	Limits       PolicyLimits   `json:"limits,omitzero"`
}

// PolicyMatch is one alternative: of all that it names, each must hold.
type PolicyMatch struct {
	Methods []string      `json:"methods,omitempty"` // any of them
	Paths   []PolicyValue `json:"paths,omitempty"`   // any of them
	Headers []PolicyField `json:"headers,omitempty"`
	Query   []PolicyField `json:"query,omitempty"`
}

// PolicyValue is a text to compare with.
type PolicyValue struct {
	Type  string `json:"type,omitempty"` // "exact", "prefix" (default) or "regex"
	Value string `json:"value"`
}

// PolicyField is a header or a query parameter and the value that it must have.
type PolicyField struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitempty"` // "exact" (default), "prefix" or "regex"
	Value string `json:"value"`
}

// PolicySecret is the exact place where a secret goes: one of Header, Query
// and Body.
type PolicySecret struct {
	Name     string `json:"name"` // of the secret
	Header   string `json:"header,omitempty"`
	Scheme   string `json:"scheme,omitempty"`   // with "Authorization": "Bearer" (default), "Basic" or "token"
	Username string `json:"username,omitempty"` // with "Basic"
	Query    string `json:"query,omitempty"`
	Body     string `json:"body,omitempty"`     // a JSON pointer, or a form field's name
	Optional bool   `json:"optional,omitempty"` // the rule stands without it
}

// PolicyLimits bound what goes through one rule; 0 is no bound.
type PolicyLimits struct {
	RequestBytes      int64 `json:"request_bytes,omitempty"`
	ResponseBytes     int64 `json:"response_bytes,omitempty"`
	RequestsPerMinute int   `json:"requests_per_minute,omitempty"`
	Bytes             int64 `json:"bytes,omitempty"` // of all, both ways
}

// PolicyDNS is what the sandbox's resolver does beyond addresses.
type PolicyDNS struct {
	Types            []string `json:"types,omitempty"`     // asked for upstream beside A and AAAA
	Upstreams        []string `json:"upstreams,omitempty"` // "ADDRESS" or "ADDRESS:PORT"; default: the machine's
	QueriesPerMinute int      `json:"queries_per_minute,omitempty"`
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
	Code    string       `json:"code,omitempty"` // why it is refused
	Rule    string       `json:"rule,omitempty"` // the rule that decides
	Reason  string       `json:"reason,omitempty"`
	Hint    string       `json:"hint,omitempty"`    // what would allow it
	Secrets []string     `json:"secrets,omitempty"` // names of those that would be put in
	Steps   []PolicyStep `json:"steps,omitempty"`   // each decision on the way, in order
}

// PolicyStep is one decision on the way of a request.
type PolicyStep struct {
	Question string `json:"question"` // "connect to api.example.com:443"
	Mode     string `json:"mode"`     // "refuse", "relay", "sniff", "passthrough", "inspect" or "allow"
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
