package policy

// Version is the only version of the schema that there is.
const Version = 1

// Policy says what one sandbox may reach. The zero value refuses everything.
// Parse reads one; Compile checks it and makes it ready to decide.
type Policy struct {
	Version int     `json:"version,omitempty"` // 0 is Version
	Default Default `json:"default,omitempty"` // "" is DefaultDeny
	// Presets are names of what Presets lists. Compile puts their rules behind
	// Rules.
	Presets []string `json:"presets,omitempty"`
	Rules   []Rule   `json:"rules,omitempty"`
	DNS     DNS      `json:"dns,omitzero"`
}

// Default is what becomes of what no rule is about.
type Default string

// The defaults.
const (
	DefaultDeny Default = "deny"
	// DefaultPublic lets through what goes to public addresses, under names
	// that the gate has resolved. A host that an allowing rule is about is
	// governed by the rules alone.
	DefaultPublic Default = "public"
)

// Action is what a rule does with what it matches.
type Action string

// The actions.
const (
	ActionAllow Action = "allow" // also where a rule says none
	ActionDeny  Action = "deny"
)

// Rule is about destinations: Hosts and Addresses, of which it needs one.
type Rule struct {
	ID     string `json:"id,omitempty"`     // unique, [a-z0-9][a-z0-9._:/-]{0,63}; "" is rule-N, N its place from 1 on
	Action Action `json:"action,omitempty"` // "" is ActionAllow
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
	// 443 for ProtocolTLS, every one for ActionDeny, and an error for others.
	// DNS's 53 and 853, and with UDP 443 and 80, are open only where a rule for
	// ProtocolTCP or ProtocolUDP has the very number.
	Ports []string `json:"ports,omitempty"`
	// Protocol is ProtocolHTTP where it is "", but for ActionDeny without
	// Matches: there it is every one.
	Protocol Protocol `json:"protocol,omitempty"`

	// What follows is for ProtocolHTTP alone.

	// Matches select requests: one of them must match whole. None: every
	// request does. For ActionDeny doubt is enough: a path that could be read
	// in two ways is refused.
	Matches []Match `json:"matches,omitempty"`
	// Secrets are put into requests over TLS alone; a request in the clear does
	// not match a rule that has one.
	Secrets []Secret `json:"secrets,omitempty"`
	// Auth says what becomes of credentials of the guest's own, where the rule
	// has Secrets: "" refuses them, AuthGuest lets them through.
	Auth Auth `json:"auth,omitempty"`
	// Placeholders says what becomes of placeholders, of any secret, in the
	// bodies and messages that the guest sends and that are no Secret's place:
	// "" refuses them, PlaceholdersPass sends them on as they are.
	Placeholders Placeholders `json:"placeholders,omitempty"`
	// Roots are the PEM certificates that an upstream may be signed by, instead
	// of the machine's.
	Roots string `json:"roots,omitempty"`

	Limits Limits `json:"limits,omitzero"`
}

// Protocol is how a rule's connections are carried.
type Protocol string

// The protocols.
const (
	ProtocolHTTP Protocol = "http" // HTTP of every version, in TLS or clear; TLS is intercepted
	ProtocolTLS  Protocol = "tls"  // TLS by the name that it asks for, passed through unread
	ProtocolTCP  Protocol = "tcp"  // any bytes
	ProtocolUDP  Protocol = "udp"
)

// Auth is a rule's stand towards the guest's own credentials.
type Auth string

// AuthGuest lets them through.
const AuthGuest Auth = "guest"

// Placeholders is a rule's stand towards placeholders in bodies.
type Placeholders string

// PlaceholdersPass sends them on: for an API that an agent tells all that it
// saw, its own environment included. A placeholder is no secret.
const PlaceholdersPass Placeholders = "pass"

// Match is one alternative, in the words of Kubernetes' HTTPRoute: of all
// that it names, each must hold. Fields in which a request names another method
// or path for itself, such as X-HTTP-Method-Override, count as what they name.
type Match struct {
	Methods []string `json:"methods,omitempty"` // any of them; upper case once compiled
	Paths   []Value  `json:"paths,omitempty"`   // any of them; the path alone, decoded once and cleaned
	Headers []Field  `json:"headers,omitempty"` // each of them
	Query   []Field  `json:"query,omitempty"`   // each of them
}

// MatchType is how a text is compared.
type MatchType string

// The types. HTTPRoute's own words for them are read too.
const (
	MatchExact  MatchType = "exact"  // "Exact"; also where none is named, but for paths
	MatchPrefix MatchType = "prefix" // "PathPrefix": whole segments; the default for paths
	MatchRegex  MatchType = "regex"  // "RegularExpression": RE2, of the whole text
)

// Value is a text to compare with.
type Value struct {
	Type  MatchType `json:"type,omitempty"`
	Value string    `json:"value"`
}

// Field is a header or a query parameter, and the value that it must have.
type Field struct {
	Name  string    `json:"name"`
	Type  MatchType `json:"type,omitempty"`
	Value string    `json:"value"`
}

// Secret is where on a route a secret goes: exactly one of Header, Query and
// Body. The guest holds its placeholder, or nothing.
type Secret struct {
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
}

// Limits bound what goes through one rule; 0 is no bound.
type Limits struct {
	RequestBytes      int64 `json:"request_bytes,omitempty"`       // of one request's body, or sent on one connection
	ResponseBytes     int64 `json:"response_bytes,omitempty"`      // of one response's body, or received on one connection
	RequestsPerMinute int   `json:"requests_per_minute,omitempty"` // requests, or connections, begun
	Bytes             int64 `json:"bytes,omitempty"`               // of all, both ways, in the life of the gate
}

// DNS is what the gate's resolver does beyond addresses.
type DNS struct {
	// Types are asked for upstream beside A and AAAA: CNAME, TXT, MX, SRV, NS,
	// PTR, SOA, CAA, NAPTR.
	Types []string `json:"types,omitempty"`
	// Upstreams are "ADDRESS" or "ADDRESS:PORT"; none: the machine's own.
	Upstreams []string `json:"upstreams,omitempty"`
	// QueriesPerMinute bounds what is asked; 0: DefaultQueriesPerMinute.
	QueriesPerMinute int `json:"queries_per_minute,omitempty"`
}

// DefaultQueriesPerMinute bounds the questions of a sandbox.
const DefaultQueriesPerMinute = 600
