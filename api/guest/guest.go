// Package guest has the messages in JSON that the host and the guest agent
// exchange, beside the services of package guestv1. It has no logic, and
// nothing here is for anybody outside.
package guest

import "time"

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

// ActionsTarget is what a CONNECT to the agent names for the action protocol: one
// request and its reply follow. See package action.
const ActionsTarget = "actions.carboy:5005"

// SocketTarget is what a CONNECT to the agent names for a unix socket inside, whose path the header SocketHeader has, escaped as in
// a query. Where nobody listens there, the answer is 404.
const (
	SocketTarget = "socket.carboy:5005"
	SocketHeader = "Carboy-Socket"
)

// LackNetwork begins what the agent says, in its status, of the gate's name and
// certificates: it could not install them.
const LackNetwork = "network: "

// Asked is a name that was asked for in an instance without a network.
type Asked struct {
	Name  string    `json:"name"` // in lower case; what is no letter, digit, "-" or "_" is escaped
	Type  string    `json:"type"` // "A"
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
}

// AskedAnswer is what the agent tells of them.
type AskedAnswer struct {
	Names  []Asked `json:"names"`
	Others int     `json:"others,omitempty"` // questions for names beyond those
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

// Limits is the body of POST /carboy/limits: what holds for the commands of a
// running sandbox from now on.
type Limits struct {
	PIDs int64 `json:"pids"` // processes and threads of all commands together; above zero
}

// Machine is what commands are shown of their limits, where programs look for the size of
// the machine that they are on. It is the body of POST /carboy/machine.
type Machine struct {
	CPUs   float64 `json:"cpus"`   // 0: as many as there are
	Memory int64   `json:"memory"` // bytes; 0: as much as there is
	PIDs   int64   `json:"pids"`   // processes and threads; 0: any number
	// Processors are the numbers of those that commands are to run on, as many as CPUs is
	// rounded up. Empty: the agent's first.
	Processors []int `json:"processors,omitempty"`
}

// Lock is the body of POST /carboy/lock: which parts of a mount are to be read-only for all inside. The rest of it can be
// written to.
type Lock struct {
	Path  string `json:"path"`            // absolute; a mount of its own
	Parts []Part `json:"parts,omitempty"` // Path or below, ascending
	// EndWriters has what is in the way ended.
	EndWriters bool `json:"end_writers,omitempty"`
}

// Part is a directory, and whether it and what is below are read-only, as far as no part in it says otherwise.
type Part struct {
	Path     string `json:"path"` // absolute
	ReadOnly bool   `json:"read_only"`
}

// LockAnswer is the answer.
type LockAnswer struct {
	Busy    bool     `json:"busy,omitempty"`    // nothing was changed: something is in the way
	Holders []Holder `json:"holders,omitempty"` // where Busy: what, as far as it was found
	Now     []Part   `json:"now,omitempty"`     // where Busy: what holds
	Ended   []Holder `json:"ended,omitempty"`   // what was ended
}

// How is what somebody has of a file or directory.
type How string

// What is in the way of making a directory read-only.
const (
	HowWrites   How = "writes"    // has it open for writing
	HowMaps     How = "maps"      // has it in its memory
	HowReaches  How = "reaches"   // has it open, and could write by that
	HowWorksIn  How = "works in"  // has it as its working directory
	HowRootedIn How = "rooted in" // has it as its root
	HowPasses   How = "passes"    // has a socket in which descriptors wait, of which nobody knows
	HowLinked   How = "linked"    // nobody: the file has another name outside of the directory
)

// Holder is a process, and what it has. What runs there can say what it likes of its name.
type Holder struct {
	PID     int    `json:"pid,omitempty"` // as those inside see it; 0: the agent itself, for somebody outside, or nobody
	Program string `json:"program"`
	Path    string `json:"path"`
	How     How    `json:"how"`
}

// Processes are the answer to GET /carboy/processes.
type Processes struct {
	List    []Process `json:"list"`    // by PID; not all of them where there are very many
	Total   int       `json:"total"`   // processes
	Threads int       `json:"threads"` // of all of them, which is what a limit of processes counts
}

// Process is one process inside. What runs there can say what it likes of its
// command.
type Process struct {
	PID       int    `json:"pid"` // as those inside see it
	Parent    int    `json:"parent"`
	UID       int    `json:"uid"`
	User      string `json:"user"` // the name of the account, or its number
	State     string `json:"state"`
	Started   int64  `json:"started"` // Unix seconds; 0: not known
	CPUMillis int64  `json:"cpu_ms"`
	RSS       int64  `json:"rss"` // bytes in memory
	Threads   int    `json:"threads"`
	Command   string `json:"command"` // its arguments, bounded
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
