package policy

import "github.com/carboy-sandbox/carboy/api"

// Version is the only version of the schema that there is.
const Version = 1

// What a policy is made of: what users write, and the wire carries. The zero
// Policy refuses everything. Parse reads one; Compile checks it and makes it
// ready to decide.
type (
	Policy = api.Policy
	Rule   = api.PolicyRule
	Match  = api.PolicyMatch
	Value  = api.PolicyValue
	Field  = api.PolicyField
	Secret = api.PolicySecret
	Limits = api.PolicyLimits
	DNS    = api.PolicyDNS
)

// Default is what becomes of what no rule is about.
type Default = string

// The defaults.
const (
	DefaultDeny Default = "deny"
	// DefaultPublic lets through what goes to public addresses, under names
	// that the gate has resolved. A host that an allowing rule is about is
	// governed by the rules alone.
	DefaultPublic Default = "public"
)

// Action is what a rule does with what it matches.
type Action = string

// The actions.
const (
	ActionAllow Action = "allow" // also where a rule says none
	ActionDeny  Action = "deny"
)

// Protocol is how a rule's connections are carried.
type Protocol = string

// The protocols.
const (
	ProtocolHTTP Protocol = "http" // HTTP of every version, in TLS or clear; TLS is intercepted
	ProtocolTLS  Protocol = "tls"  // TLS by the name that it asks for, passed through unread
	ProtocolTCP  Protocol = "tcp"  // any bytes
	ProtocolUDP  Protocol = "udp"
)

// Auth is a rule's stand towards the guest's own credentials.
type Auth = string

// AuthGuest lets them through.
const AuthGuest Auth = "guest"

// Placeholders is a rule's stand towards placeholders in bodies.
type Placeholders = string

// PlaceholdersPass sends them on: for an API that an agent tells all that it
// saw, its own environment included. A placeholder is no secret.
const PlaceholdersPass Placeholders = "pass"

// MatchType is how a text is compared.
type MatchType = string

// The types. HTTPRoute's own words for them are read too.
const (
	MatchExact  MatchType = "exact"  // "Exact"; also where none is named, but for paths
	MatchPrefix MatchType = "prefix" // "PathPrefix": whole segments; the default for paths
	MatchRegex  MatchType = "regex"  // "RegularExpression": RE2, of the whole text
)

// DefaultQueriesPerMinute bounds the questions of a sandbox.
const DefaultQueriesPerMinute = 600
