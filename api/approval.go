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

	Kind     string `json:"kind"` // "request", "connection", "secret" or "push"
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

	// Push is what would be pushed, for that kind; absent in lists.
	Push *ApprovalPush `json:"push,omitempty"`

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

// ApprovalPush is what would be pushed, where that is what a person is asked. Nothing in it is a
// secret that was found. Names and texts are the sandbox's own words.
type ApprovalPush struct {
	Remote   string       `json:"remote"`
	URL      string       `json:"url"`
	Updates  []PushUpdate `json:"updates"`
	Commits  []PushCommit `json:"commits"`  // that upstream has not, the oldest first, at most 100
	New      int          `json:"new"`      // how many there are
	Bytes    int64        `json:"bytes"`    // of all that is new, unpacked
	Findings []string     `json:"findings"` // why it is asked about, at most 50
	More     int          `json:"more"`     // findings besides
	Diff     string       `json:"diff"`     // of the commits, one by one; "" once it was answered, and in what is told unasked
	Cut      bool         `json:"cut"`      // Diff is the beginning alone
	Digest   string       `json:"digest"`   // of the updates: an answer is bound to it
}

// PushUpdate is what a push does to a ref.
type PushUpdate struct {
	Ref string `json:"ref"`
	Old string `json:"old,omitempty"` // absent: it is made
	New string `json:"new,omitempty"` // absent: it is removed
}

// PushCommit is one of a push.
type PushCommit struct {
	ID      string `json:"id"`
	Author  string `json:"author"`
	Subject string `json:"subject"`
}
