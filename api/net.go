package api

import "time"

// NetRecord is one line of what a sandbox tried to reach: a DNS question, a
// connection, a request, or a run of refused packets. GET
// /v1/sandboxes/{id}/netlog streams them as JSON lines, oldest first; an empty
// line says that the stream is alive. ?after=SEQ leaves out what is known,
// ?since=TIME (RFC 3339) what was before, ?denied=1 what was allowed, and ?follow=1 goes on as more comes. A stream
// without follow that is cut short ends with a broken connection.
//
// Host, Path and Result may be the sandbox's own words: escape them before
// they are shown.
type NetRecord struct {
	Seq     uint64    `json:"seq"` // from 1 on, in order
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`        // its ID
	Verdict string    `json:"verdict"`        // "allow" or "deny"
	Code    string    `json:"code,omitempty"` // why it was refused, or cut
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason,omitempty"`

	Protocol string `json:"protocol"`          // dns, tcp, udp, tls, http, https, service, icmp or frame
	Host     string `json:"host,omitempty"`    // as the sandbox named it, bounded
	Address  string `json:"address,omitempty"` // "192.0.2.1:443"
	Method   string `json:"method,omitempty"`  // of a request; of a DNS question, its type
	Path     string `json:"path,omitempty"`    // without the query, bounded
	Status   int    `json:"status,omitempty"`  // of the response; a DNS answer's rcode is in Result
	Result   string `json:"result,omitempty"`  // for DNS: "NOERROR 192.0.2.1 192.0.2.2"; else how it ended, where not well

	Sent     int64         `json:"sent,omitempty"` // bytes of bodies, or of the connection
	Received int64         `json:"received,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	Secrets  []string      `json:"secrets,omitempty"` // names of those that were put in
	Count    int           `json:"count,omitempty"`   // how often, where like ones were counted into this one
}

// GateRefusal is what a gate answers a request with that it refuses, inside the sandbox, as one
// line of JSON; Code is in the header X-Carboy-Refused as well. An offer whose program is not
// there answers by it, too.
type GateRefusal struct {
	Code    string `json:"code"` // one word, for programs
	Message string `json:"message"`
	Rule    string `json:"rule"`           // that decided; "" where none did
	Host    string `json:"host"`           // whom the request was for
	Hint    string `json:"hint"`           // what would help; "" where nothing does
	What    string `json:"what,omitempty"` // what a person was asked
}
