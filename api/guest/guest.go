// Package guest has the messages in JSON that the host and the guest agent
// exchange, beside the services of package guestv1. It has no logic, and
// nothing here is for anybody outside.
package guest

// Network is what the agent is told of a sandbox's one way out: the gate.
type Network struct {
	// Nameservers are the addresses of the gate's resolver, at most three.
	Nameservers []string `json:"nameservers"`
	// Gate is the gate's host name; the guest's /etc/hosts has it for each of
	// the name servers. Empty: it has none.
	Gate string `json:"gate,omitempty"`
	// Trust is the certificate of the sandbox's own authority in PEM, one, and
	// never a key. Empty: the guest trusts whom its image trusts.
	Trust string `json:"trust,omitempty"`
	// Roots is a file in PEM, as the agent sees it, with the authorities that
	// an image without any is given. Empty: it is given Trust alone.
	Roots string `json:"roots,omitempty"`
}

// What an Attempt tries.
const (
	TCP  = "tcp"  // connect and, with Send, wait for an answer
	UDP  = "udp"  // send Send and wait for an answer
	ICMP = "icmp" // send an echo request and wait for an answer
	RAW  = "raw"  // open sockets that make packets of their own, of each kind
)

// What an Attempt is to end like.
const (
	WantOpen    = "open"
	WantRefused = "refused" // anything but OutcomeConnected and OutcomeAnswered
)

// How an Attempt ended.
const (
	OutcomeConnected   = "connected"   // TCP: and there was no answer; RAW: a socket was opened
	OutcomeAnswered    = "answered"    // something came back
	OutcomeRefused     = "refused"     // a reset, or the port was said to be unreachable
	OutcomeUnreachable = "unreachable" // no route, or the host was said to be unreachable
	OutcomeTimeout     = "timeout"     // nothing until the time was over
	OutcomeDenied      = "denied"      // the kernel gave no such socket
)

// Bounds of a Probe.
const (
	MaxAttempts   = 64
	MaxProbeBytes = 1232 // of Send, and of Expect
	MaxProbeMS    = 5000
)

// Probe is the body of POST /carboy/probe: what a command of the sandbox's
// user is to try. All attempts are made at once.
type Probe struct {
	Attempts  []Attempt `json:"attempts"`
	TimeoutMS int       `json:"timeout_ms"` // for all of them together; from 1 to MaxProbeMS
}

// Attempt is one thing to try.
type Attempt struct {
	Name    string `json:"name"`    // unlike the others'
	Network string `json:"network"` // TCP, UDP, ICMP or RAW
	// Address is "192.0.0.1:53" or "[fd63::1]:53", an address alone for ICMP,
	// and empty for RAW. A name is an error.
	Address string `json:"address,omitempty"`
	Want    string `json:"want"` // WantOpen or WantRefused
	// Send is what to send, in base64: something for UDP, nothing for ICMP and
	// RAW.
	Send []byte `json:"send,omitempty"`
	// Expect is how the answer to Send begins; with WantOpen another answer is
	// not what was wanted. Empty: any will do.
	Expect []byte `json:"expect,omitempty"`
}

// ProbeAnswer is the answer, in the order of the attempts.
type ProbeAnswer struct {
	Results []ProbeResult `json:"results"`
}

// ProbeResult is how one Attempt ended.
type ProbeResult struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"` // it ended as was wanted
	Outcome string `json:"outcome"`
	Micros  int64  `json:"micros"` // from the attempt's beginning to its outcome
}

// Claim is the body of POST /carboy/claim: what the host says once a sandbox
// that was started before anyone asked for it has an owner.
type Claim struct {
	Env map[string]string `json:"env"` // on top of the configuration's
	// Network connects a sandbox that had none; nil: it stays as it is.
	Network *Network `json:"network,omitempty"`
}

// Metrics are the answer to GET /metrics, as envd gives it. Sizes are bytes but for
// those named otherwise.
type Metrics struct {
	TS          int64   `json:"ts"` // Unix seconds
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"` // of all, since the last call
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}
