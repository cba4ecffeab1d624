// Package facts is what the escape suite tells its probe and hears from it:
// what was planted on the host, and what a probe found. It holds no logic, and
// nothing that would let a probe find what it is told about: of secret content
// it carries digests alone.
package facts

// Places inside the box that the suite uses. Each is a mount of its own.
const (
	Tools    = "/srv/tools"     // read-only: the probe, its set-user-id twin, the facts
	Writable = "/srv/writable"  // the host's own tree, a git repository
	ReadOnly = "/srv/read-only" // the host's own tree
	Work     = "/workspace"     // copy-on-write
	Control  = "/run/carboy"    // the guest agent's, which commands must not see
	Groups   = "/sys/fs/cgroup" // where commands are shown the control groups of their box
)

// Walls, as --isolation names them.
const (
	GVisor  = "gvisor"
	Process = "process"
)

// Facts are what lies on the host for a probe to find, and where it runs.
type Facts struct {
	Wall string `json:"wall"`
	User string `json:"user"` // user or root, as --user has it

	Marker       string   `json:"marker"`        // is part of every name that was planted on the host
	SecretFile   string   `json:"secret_file"`   // path on the host
	SecretSHA256 string   `json:"secret_sha256"` // of its content, hex
	Socket       string   `json:"socket"`        // path on the host of a listening unix socket
	Abstract     string   `json:"abstract"`      // name of another, without the leading NUL
	Port         int      `json:"port"`          // of a TCP listener on the host's loopback
	Addresses    []string `json:"addresses"`     // of the host, where a listener waits at Port as well
	PID          int      `json:"pid"`           // of a process of the host whose argv[0] holds Marker
	Home         string   `json:"home"`          // directory on the host that holds the daemon's state
	EnvName      string   `json:"env_name"`      // a variable of the daemon's
	IPCKey       int      `json:"ipc_key"`       // of a SysV segment, semaphore and queue
	Queue        string   `json:"queue"`         // POSIX message queue
	Key          string   `json:"key"`           // description of a key in the daemon's session keyring
	Hostname     string   `json:"hostname"`
	Rootless     bool     `json:"rootless"` // the daemon is no root: its own ids are the box's
	// Namespaces are the links below /proc/self/ns on the host, by name.
	Namespaces map[string]string `json:"namespaces"`
}

// Native reports whether system calls reach the host's kernel.
func (f Facts) Native() bool { return f.Wall == Process }

// Result is what one probe says, one JSON object a line.
type Result struct {
	Probe string `json:"probe"`
	Found bool   `json:"found"`
	// Detail is what was found, or what was seen instead.
	Detail string `json:"detail"`
	// Error says why the probe could not tell: it hung, or broke.
	Error string `json:"error,omitempty"`
}

// Attack is what came of an attempt to reach, from inside, what the host keeps
// beside a box's own tree.
type Attack struct {
	How     string   `json:"how"`     // the mount that showed it; "" where none did
	Dir     string   `json:"dir"`     // where it showed
	Links   []string `json:"links"`   // what was replaced by a link
	Written int64    `json:"written"` // bytes of a file put there
	Notes   []string `json:"notes"`   // why no more came of it
}

// Forged begins what a forged agent answers.
const Forged = "the forger's answer"

// Tried is what came of each way to change what is mounted, by its name: "" for
// what went through, and else the error.
type Tried map[string]string

// InUser is the making of a user namespace in Tried, and begins the names of
// what its root tried.
const InUser = "user namespace"
