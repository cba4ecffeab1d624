package netlog

import "time"

// Verdict is what became of what a sandbox tried.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Record is one line of a sandbox's record: one DNS question, connection,
// request, or run of refused packets.
type Record struct {
	Seq     uint64    `json:"seq"` // from 1 on, without gaps; set by Writer
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"` // its ID; set by Writer
	Verdict Verdict   `json:"verdict"`
	Code    string    `json:"code,omitempty"` // why it was refused, or cut: policy.Code and those of egress
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason,omitempty"`

	Protocol string `json:"protocol"`          // dns, tcp, udp, tls, http, https, icmp, frame
	Host     string `json:"host,omitempty"`    // as the guest named it, bounded
	Address  string `json:"address,omitempty"` // "192.0.2.1:443"
	Method   string `json:"method,omitempty"`  // of a request; a DNS question's type
	Path     string `json:"path,omitempty"`    // without the query, bounded
	Status   int    `json:"status,omitempty"`  // of the response; a DNS answer's rcode is in Result
	Result   string `json:"result,omitempty"`  // for DNS: "NOERROR 192.0.2.1 192.0.2.2"; else how it ended, where not well

	Sent     int64         `json:"sent,omitempty"`     // bytes of bodies, or of the connection
	Received int64         `json:"received,omitempty"` //
	Duration time.Duration `json:"duration_ns,omitempty"`
	Secrets  []string      `json:"secrets,omitempty"` // names of those that were put in
	Count    int           `json:"count,omitempty"`   // how often, where like ones were counted into this one
}
