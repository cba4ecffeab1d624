package api

import "time"

// Approval is what a person is, or was, asked on behalf of a sandbox. GET
// /v1/approvals lists those that wait for an answer, and with ?all=1 what became of
// others; ?follow=1 streams them as JSON lines, each again as it changes, and an empty
// line says that the stream is alive.
//
// Host, Method and Target are the sandbox's own words: escape them before they are
// shown.
type Approval struct {
	ID        int64  `json:"id"`
	Sandbox   string `json:"sandbox"` // its name
	SandboxID string `json:"sandbox_id"`
	Owner     string `json:"owner"`
	// State is "asked"; or "allowed" (once), "granted" (until Until), "denied",
	// "expired" (nobody answered), "voided" (the policy, the gate or the daemon is
	// another), "withdrawn" (what waited has gone), "ended" (a grant).
	State string `json:"state"`

	Kind     string `json:"kind"` // "request", "connection" or "secret"
	What     string `json:"what"` // "POST https://api.example.com/v1/items?a=b"
	Rule     string `json:"rule"` // the rule that asks
	Revision string `json:"revision"`
	Protocol string `json:"protocol"`
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	// Address is where it goes, where the rule is about that; "": it is about Host.
	Address string `json:"address,omitempty"`
	Method  string `json:"method,omitempty"`
	Target  string `json:"target,omitempty"` // path and query; without the query once it was answered
	Secret  string `json:"secret,omitempty"` // the name of the one that is to go out
	Body    bool   `json:"body,omitempty"`   // it has one, or is an upgrade, and nobody has seen what follows

	Asked   time.Time `json:"asked"`
	Expires time.Time `json:"expires"` // when it is refused
	Waiting int       `json:"waiting"` // how many requests or connections wait

	Scope   string    `json:"scope,omitempty"` // of the answer: "once", "sandbox" or "always"
	Until   time.Time `json:"until,omitzero"`  // of a grant
	Reason  string    `json:"reason,omitempty"`
	By      string    `json:"by,omitempty"` // who answered
	Decided time.Time `json:"decided,omitzero"`

	// Writes is the policy's rule that the scope "always" writes; absent where none
	// can say the same, and in lists.
	Writes *PolicyRule `json:"writes,omitempty"`
	// NoRule says why that scope can write no rule for a question that is open; absent
	// where it can, and in lists.
	NoRule string `json:"no_rule,omitempty"`
}

// ApprovalDecision is the body of POST /v1/approvals/{id}/allow and of /deny.
type ApprovalDecision struct {
	// Scope of an allow: "once" (default) is what waits now; "sandbox" the same
	// question too, until the sandbox stops, its policy changes, or For has passed;
	// "always" writes a rule into the sandbox's policy.
	Scope string `json:"scope,omitempty"`
	// For bounds "sandbox", in milliseconds; 0: 24 hours, which are the most.
	For    int64  `json:"for_ms,omitempty"`
	Reason string `json:"reason,omitempty"` // for whoever reads the record, at most 512 bytes
}
