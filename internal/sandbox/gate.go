package sandbox

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

// Networks that a Spec may ask for.
const (
	NetworkOff    = "off"    // none
	NetworkPolicy = "policy" // what Spec.Policy lets through
	NetworkOn     = "on"     // the public internet too: Spec.Policy's default is policy.DefaultPublic or DefaultRead
)

// Gate makes the egress gates of sandboxes: each stands between one of them and
// the world. It knows nothing of names, owners' rights or expiry. All methods may
// be called at any time from several goroutines, but never two of Open, Close
// and Remove at once for the same ID.
type Gate interface {
	// Check says how the network of spec would be kept, or fails with
	// Unsupported where it can't be.
	Check(ctx context.Context, spec Spec) (Enforcement, error)
	// Entitled fails where owner has no secret of one of those names.
	Entitled(ctx context.Context, owner string, names []string) error
	// Open makes sb's link, with the end that its Backend takes, and starts its
	// gate, which lets through what sb.Spec.Policy does; where only the Backend can
	// make the link, its Attach starts the gate. It fails with Unsupported for a
	// form that it can't make. It keeps values as Keep does: a later start brings none.
	// The caller closes the link once the instance has it.
	Open(ctx context.Context, sb *Sandbox, takes LinkForm, values SecretValues) (*Link, error)
	// Verify waits for the gate and tries from inside the instance what must work
	// and what must not. dial connects to the instance's agent. It fails where a
	// promise does not hold. What programs inside were to trust, and were not told of, is
	// a promise of its own that is not kept: PromiseTrust.
	Verify(ctx context.Context, sb *Sandbox, dial func(context.Context) (net.Conn, error)) ([]Enforcement, error)
	// Adopt takes over the gate of an instance that an earlier daemon started, and
	// starts one where it has died. It owns end, the instance's end of the link.
	// After an error it is called again.
	Adopt(ctx context.Context, sb *Sandbox, end *os.File) error
	// Keep takes values of secrets for a sandbox that has a gate, running or not:
	// Set, or the next Open, makes it use those of sb.Spec.Secrets.
	Keep(ctx context.Context, sb *Sandbox, values SecretValues) error
	// Values are those of sb's secrets that belong to it alone.
	Values(ctx context.Context, sb *Sandbox) (SecretValues, error)
	// Set gives a running gate the policy of sb.Spec, and ends what is open and no
	// longer may be.
	Set(ctx context.Context, sb *Sandbox) error
	// Close ends a gate. Its record stays, and so does what Open needs to open it
	// again for a stopped sandbox.
	Close(ctx context.Context, id string) error
	// Remove deletes all that is left of one that was closed.
	Remove(ctx context.Context, id string) error
	// Gates lists the IDs of which anything is left.
	Gates(ctx context.Context) ([]string, error)
	// Log hands the records of a sandbox to yield, oldest first, until yield
	// fails or, without Follow, there are no more.
	Log(ctx context.Context, id string, o NetLogOptions, yield func(netlog.Record) error) error
	// OfferService offers a service to a sandbox by its running gate. The connection is
	// for offer.Serve. It fails with Conflict where somebody else offers it.
	OfferService(ctx context.Context, id, service string) (net.Conn, error)
	// Use counts what went through a running gate since it was started.
	Use(ctx context.Context, id string) (NetUse, error)
}

// Holder is a Gate that keeps files for sandboxes: mirrors of their remotes.
type Holder interface {
	// Held is how many bytes of the host's disk they take.
	Held(ctx context.Context, id string) (int64, error)
}

// PromiseTrust is the promise that programs inside trust the gate's certificates. It
// is told of where it is not kept.
const PromiseTrust = "trust"

// NetUse is what a gate has counted.
type NetUse struct {
	Connections int          `json:"connections"` // open now
	Counters    []NetCounter `json:"counters"`
}

// NetCounter counts records that are alike.
type NetCounter struct {
	Protocol string         `json:"protocol"`
	Verdict  netlog.Verdict `json:"verdict"`
	Code     string         `json:"code,omitempty"`
	Count    uint64         `json:"count"`
	Sent     uint64         `json:"sent"`     // bytes
	Received uint64         `json:"received"` // bytes
}

// NetLogOptions select records.
type NetLogOptions struct {
	After  uint64    // those with a higher Seq
	Since  time.Time // those from then on; zero: all. Only NetLog looks at it
	Denied bool      // those that were refused
	Follow bool      // and those to come
}

// LinkForm is what a backend takes as an instance's end of its link.
type LinkForm string

// LinkNetNS is a network namespace with the interface in it: Link.NetNS. A wall
// that runs a kernel with a network device of its own will take a descriptor of
// frames: a form of its own, and a field beside NetNS.
const LinkNetNS LinkForm = "netns"

// Link is an instance's way to its gate: one end, in the form that its Backend
// takes, and what the instance is told.
type Link struct {
	// NetNS is the network namespace that the instance is to be in. It holds an
	// interface that is up, with addresses and routes. Nil where only the Backend
	// can make one: then Start makes it, and calls Attach before it returns.
	NetNS *os.File
	// Attach starts the gate at the other end of an interface that a Backend made:
	// frames is a descriptor to read and write its frames by, and closed by it. Nil
	// where the gate made the link.
	Attach func(frames *os.File) error
	// Join makes the gate count as the instance's: files of its control groups to
	// write a process's ID into.
	Join func(procs []string) error
	// Env is for all commands, where the Spec does not say otherwise: the
	// placeholders of secrets.
	Env map[string]string
	// Trust is the PEM certificate by which the gate answers for others.
	Trust string
	// Nameservers are the gate's addresses, Hostname its name.
	Nameservers []string
	Hostname    string
}

// Close gives up the namespace, which lives on with the instance.
func (l *Link) Close() error {
	if l == nil || l.NetNS == nil {
		return nil
	}
	return l.NetNS.Close()
}
