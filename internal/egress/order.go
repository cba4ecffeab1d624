package egress

import (
	"net/netip"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// order is what a gate process reads on its standard input when it starts.
type order struct {
	Sandbox   string           `json:"sandbox"`
	Root      string           `json:"root"`     // an empty directory, which becomes its root
	UID       uint32           `json:"uid"`      // whom it becomes; 0: it stays who it is
	Rootless  bool             `json:"rootless"` // in a user namespace, where it stays who it is
	Cert      string           `json:"cert"`     // the sandbox's CA, in PEM
	Key       string           `json:"key"`
	Resolvers []netip.AddrPort `json:"resolvers"` // the machine's
	Config    config           `json:"config"`
	// Probed: nothing is recorded until the daemon says so: until then nobody
	// is inside but the agent, which tries what must not work.
	Probed bool `json:"probed"`
}

// config is what may change while a gate runs.
type config struct {
	Policy       policy.Policy     `json:"policy"`
	Placeholders map[string]string `json:"placeholders"` // of the secrets that the sandbox was given, by name
	Secrets      map[string]value  `json:"secrets"`      // those that need not be asked for
}

// value is a secret's. It is printed as what it is: a secret.
type value struct {
	Text    string    `json:"text"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// lasts reports whether it may be used without asking.
func (v value) lasts() bool { return v.Expires.IsZero() || time.Now().Before(v.Expires) }

func (value) String() string   { return "[secret]" }
func (value) GoString() string { return "[secret]" }

// answered is what a gate tells of a secret that it asked for.
type answered struct {
	Name  string `json:"name"`
	Value value  `json:"value"`
	Error string `json:"error,omitempty"` // why there is none
}

// status is what a gate says of itself.
type status struct {
	PID     int            `json:"pid"`
	Started time.Time      `json:"started"`
	Use     sandbox.NetUse `json:"use"`
}

// Descriptors of a gate process, from 3 on.
const (
	fdTAP = 3 + iota
	fdControl
	fdLogA
	fdLogB
	fdOffers
)

// RoleGate is the name by which a gate's program is executed.
const RoleGate = "carboy-gate"

// Paths of a gate's control socket.
const (
	pathStatus  = "/status"
	pathConfig  = "/config"
	pathWanted  = "/wanted" // answers with the name of a secret once one is wanted
	pathSecrets = "/secrets"
	pathAsked   = "/asked"  // answers with what waits for a person, once that is not what it was
	pathAnswer  = "/answer" // takes a person's answer
	pathRecord  = "/record" // from now on, what is tried is recorded
)
