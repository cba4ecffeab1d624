package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
)

// Backend is a wall. It builds instances whose first process is the guest agent,
// hands out connections to it, and ends them. It knows nothing of names,
// owners or expiry. Every implementation passes backendtest.
//
// An instance is known by the sandbox's ID. All methods may be called at any time
// from several goroutines, but never two of Start, Stop and Remove at once
// for the same ID.
type Backend interface {
	// Name is the wall's name in a Spec.
	Name() string
	// Capabilities says what it can do beyond these methods. It is always the same.
	Capabilities() Capabilities
	// Check says how each promise of spec would be kept, without building
	// anything. It fails with Unsupported where an explicit limit can't be.
	Check(ctx context.Context, spec Spec) ([]Enforcement, error)
	// Start builds the instance, or one anew over what an earlier Stop kept, and
	// returns once its guest answers. After an error nothing is left running.
	Start(ctx context.Context, sb *Sandbox) ([]Enforcement, error)
	// Stop ends the instance and everything in it. What is kept is kept on disk;
	// lost names what is not. Stopping one that is gone is no error.
	Stop(ctx context.Context, id string) (lost []string, err error)
	// Remove deletes all that Start and Stop left. The instance must not be
	// running. Removing one that is gone is no error.
	Remove(ctx context.Context, id string) error
	// Dial connects to a port inside: GuestPort is the agent's. The context
	// bounds the dialling, not the connection.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
	// Wait blocks until the instance has ended and says why, or until ctx ends.
	// It works for instances that an earlier process started; for one that does not
	// exist it returns at once.
	Wait(ctx context.Context, id string) (EndReason, error)
	// Alive reports whether the instance runs and its guest answers.
	Alive(ctx context.Context, id string) bool
	// Instances lists the IDs of sandboxes of which this backend has anything left.
	Instances(ctx context.Context) ([]string, error)
	// Changes writes the changes of /workspace as a stream that package
	// workspace reads. It works on running and on stopped sandboxes, and ends
	// early, with w's error, once w refuses more.
	Changes(ctx context.Context, sb *Sandbox, opts ChangesOptions, w io.Writer) error
}

// Capabilities are what a backend can do beyond what all do. What is left out it
// can't: a Spec that needs it gets another wall that it names, or none.
type Capabilities struct {
	// Strength is that which the backend's Name promises, or NewManager refuses it.
	Strength Strength

	HostDirs bool // its instances can show directories of the host
	Images   bool // they can start from Options.Images, not from DefaultImage alone
	Volumes  bool // they can mount Options.Volumes

	// Link is what Start takes as an instance's end of a link; "": its instances
	// can have no network. LinkEnd opens that of a running one once more.
	Link    LinkForm
	LinkEnd func(id string) (*os.File, error)

	Warm      Warmer      // nil: no instance is started before anyone asks
	Suspend   Suspender   // nil: what stops has lost its memory
	Snapshots Snapshotter // nil: what was written can't be saved
	Disks     DiskFiles   // nil: disks of stopped ones can't be looked at
	Usage     Measurer    // nil: what an instance uses is not known
	Resize    Resizer     // nil: its instances keep the limits that they were started with
	Whole     Wholer      // nil: its views show no directory by another path
	Lock      Locker      // nil: its workspaces stay as they were started
}

// check says what spec needs that the wall of that name can't do.
func (c Capabilities) check(wall string, spec Spec) error {
	mounts := func(is func(Mount) bool) bool { return slices.ContainsFunc(spec.Mounts, is) }
	fromHost := func(m Mount) bool { return m.Source != (HostDir{}) }
	switch {
	case !c.HostDirs && (spec.Workspace.Source != (HostDir{}) || mounts(fromHost)):
		return Errorf(Unsupported, "%s can't show directories of the host", wall).WithHint("copy what is needed into the sandbox")
	case !c.Images && spec.Image != DefaultImage:
		return Errorf(Unsupported, "%s can't start from an image", wall).WithHint("leave the image out")
	case !c.Volumes && len(spec.volumes()) > 0:
		return Errorf(Unsupported, "%s can't mount volumes", wall).WithHint("leave them out")
	}
	return nil
}

// Warmer starts instances of a backend before anyone asks for them.
type Warmer interface {
	// Warm starts an instance as Start would for a sandbox with that ID and spec,
	// which has no name, environment or labels, no mounts and a private
	// workspace. It belongs to nobody, and is for anybody or, where owner is
	// given, for that one alone. Stop, Remove, Wait and Instances know it as
	// they do any other. After an error nothing is left running.
	Warm(ctx context.Context, id string, spec Spec, owner string) error
	// Claim makes the warm instance sb.ID sb's: its identity, token, environment and
	// labels. Wall, image, user, network and limits are those that it was warmed
	// with. It returns once the instance's guest answers as sb's. After an error the
	// caller ends the instance. An instance is claimed once at most.
	Claim(ctx context.Context, sb *Sandbox) ([]Enforcement, error)
	// Personal reports whether owner's instance of that spec has something in it that
	// an instance for anybody lacks.
	Personal(owner string, spec Spec) bool
}

// Wholer has views of directories of the host in which a renamed directory can show one of the host's.
type Wholer interface {
	// MakeWhole has all that such directories show lie on the sandbox's own disk, of a running sandbox or a
	// stopped one, which nothing else changes meanwhile. What it shows is as it was. An error may
	// leave some of it done, and it may be called again; where the disk has no room it is Exhausted.
	MakeWhole(ctx context.Context, sb *Sandbox) (Moment, error)
}

// Moment is one in which no directory of a view shows one of the host's by another path.
type Moment struct {
	Shape string // what the view was then, for ChangesOptions; "": views are copies
	// Over is closed a second before the sandbox's commands go on by themselves; nil: none are held still.
	Over <-chan struct{}
	// Release lets the sandbox's commands go on, which are held still for a while at most. It is never nil, and is
	// to be called where there was no error.
	Release func()
}

// ErrLoose is a backend's answer to ChangesOptions.Whole: something is not whole.
var ErrLoose = Errorf(Unavailable, "a directory was renamed in the sandbox while its changes were read").WithHint("try again")

// IsLoose reports whether err is ErrLoose, which may have come through a process.
func IsLoose(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == ErrLoose.Kind && e.Msg == ErrLoose.Msg
}

// Suspender stops instances of a backend with their processes and what those
// have in memory, to go on from there at the next Start.
type Suspender interface {
	// Suspendable says why the memory of a running instance can't be kept, where
	// that is known before anything is done: the instance runs on.
	Suspendable(ctx context.Context, id string) error
	// Suspend writes a running instance's memory down and ends the instance. After an
	// error there is no memory, and the instance is of no more use.
	Suspend(ctx context.Context, id string) error
	// Suspended reports whether an instance that has ended has memory to go on with.
	// Start uses that up, whatever comes of it: ErrMemoryLost says that the instance
	// did not start for that, and would without.
	Suspended(id string) bool
	// Forget deletes the memory of an instance that has ended, if it has any.
	Forget(ctx context.Context, id string) error
}

// ErrMemoryLost is a Suspender's: an instance could not go on from its memory.
var ErrMemoryLost = errors.New("the memory of the sandbox could not be used")

// Usage is what a running instance uses.
type Usage struct {
	// CPU is the processor time of all its processes since it was started;
	// negative where it is not counted. Load tells then what share of the instance's
	// processors was busy of late, from 0 to 1.
	CPU  time.Duration
	Load float64
	// Memory is in bytes, those of Cache apart: what is kept of files, which the
	// kernel takes back when it needs to.
	Memory, Cache int64
	// Disk is what is filled of DiskTotal, in bytes.
	Disk, DiskTotal int64
}

// Measurer knows what a running instance of a backend uses: by the host's own
// figures where it has any.
type Measurer interface {
	Measure(ctx context.Context, id string) (Usage, error)
	// Processes lists what runs inside, as that says itself: it is not to be believed,
	// nor shown as it is.
	Processes(ctx context.Context, id string) (guest.Processes, error)
	// Held returns how many bytes of the host's disk an instance takes, running or not.
	Held(ctx context.Context, id string) (int64, error)
}

// Resized is what came of a Resize, by the names of limits.
type Resized struct {
	Later map[string]string // those that only a start can change, and why
	Notes map[string]string // of those that were changed: what does not follow yet
}

// Resizer changes the limits of instances that are there.
type Resizer interface {
	// Resizable says why the instance of sb, which may run, can't have the limits to,
	// as far as that is known before anything is done. It changes nothing.
	Resizable(ctx context.Context, sb *Sandbox, to Limits) error
	// Resize gives the running instance of sb, which has the limits of sb.Spec, those
	// of to, but for its disk and inodes. What is named in Later stays as it was. It may
	// be called again for the same.
	Resize(ctx context.Context, sb *Sandbox, to Limits) Resized
	// Grow gives the disk of an instance that has ended to.Disk bytes, where it had
	// from's, and returns from with what it has then. It may be called again after a
	// crash. After an error the disk is as it was.
	Grow(ctx context.Context, id string, from, to Limits) (Limits, error)
}

// ChangesOptions select what Changes writes.
type ChangesOptions struct {
	Content bool     // file contents too, not just digests
	Paths   []string // only these and what is below them; none means all
	Filter  ChangesFilter
	// Whole is for an apply, which deletes what was renamed at its old path: a directory that shows one of the
	// base by another path is an error of ErrLoose's kind and text, until MakeWhole was called.
	Whole bool
	// Shape, with Whole, is that of the Moment whose changes these are to be: what is renamed or deleted in the sandbox
	// while they are read is the same error, at whatever point of the stream.
	Shape string
	// Held, with Whole, is called once all is written, where the sandbox's commands are held still: they are until it
	// returns, or over is closed. Nil: they go on at once.
	Held func(ctx context.Context, over <-chan struct{}) `json:"-"`
	// Origins says that the stream tells what of the base each thing began as, also of what it leaves out.
	Origins bool
	// Selves, with Origins, has it tell what each thing is in the sandbox as well: an apply that took it before
	// knows it by that.
	Selves bool
}

// ChangesFilter leaves changes out of a stream, whose end says of how many files. The zero
// value leaves out none.
type ChangesFilter struct {
	// Ignore are lines of a .gitignore at the top of a repository, in which the
	// workspace is the directory Prefix. What they ignore is left out, but for a path of Paths that is
	// ignored itself, with all below it.
	Ignore []string `json:"ignore,omitempty"`
	Prefix string   `json:"prefix,omitempty"`
	// Tracked are paths of the workspace that are not ignored, whatever Ignore says.
	Tracked []string `json:"tracked,omitempty"`
	// Exclude and Only are patterns like those: what an Exclude matches is left out, and
	// what no Only matches, if there is one.
	Exclude []string `json:"exclude,omitempty"`
	Only    []string `json:"only,omitempty"`
}

// GuestPort is the port on which the guest agent speaks envd's protocol.
const GuestPort = 49983

// Store keeps records. What Put and Delete did is durable when they return,
// and after an error nothing of it is there.
type Store interface {
	// Put adds or replaces the record of sb.ID. It fails with Conflict where
	// another record has the same owner and name, and with Exhausted where
	// the disk is full.
	Put(ctx context.Context, sb *Sandbox) error
	// Get returns a NotFound error for an unknown ID.
	Get(ctx context.Context, id string) (*Sandbox, error)
	List(ctx context.Context) ([]*Sandbox, error)
	// Delete of an unknown ID is no error.
	Delete(ctx context.Context, id string) error
}
