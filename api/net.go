package api

import "time"

// NetRecord is one line of what a sandbox tried to reach: a DNS question, a
// connection, a request, or a run of refused packets. GET
// /v1/sandboxes/{id}/netlog streams them as JSON lines, oldest first; an empty
// line says that the stream is alive. ?after=SEQ leaves out what is known,
// ?denied=1 what was allowed, and ?follow=1 goes on as more comes. A stream
// without follow that is cut short ends with a broken connection.
//
// Host, Path and Result may be the sandbox's own words: escape them before
// they are shown.
type NetRecord struct {
	Seq     uint64    `json:"seq"` // from 1 on, in order
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"` // its ID
	Verdict string    `json:"verdict"` // "allow" or "deny"
	Code    string    `json:"code,omitempty"`
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason,omitempty"`

	Protocol string `json:"protocol"` // dns, tcp, udp, tls, http, https, icmp or frame
	Host     string `json:"host,omitempty"`
	Address  string `json:"address,omitempty"` // "192.0.2.1:443"
	Method   string `json:"method,omitempty"`  // of a request; of a DNS question, its type
	Path     string `json:"path,omitempty"`    // without the query
	Status   int    `json:"status,omitempty"`
	Result   string `json:"result,omitempty"` // how it ended, where that says more

	Sent     int64         `json:"sent,omitempty"`     // bytes
	Received int64         `json:"received,omitempty"` // bytes
	Duration time.Duration `json:"duration_ns,omitempty"`
	Secrets  []string      `json:"secrets,omitempty"` // names of those that were put in
	Count    int           `json:"count,omitempty"`   // how often, where it is more than once
}
