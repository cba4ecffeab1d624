// Package sandboxtest has a wall without bricks: Fake, a sandbox.Backend in
// memory whose instances fail, hang, die and take their time as a test says. It
// refuses, and remembers, what the contract of Backend forbids.
package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Op is a method of Backend, as a Hook sees it.
type Op string

// The operations. Wait, Alive and Instances are not hooked.
const (
	Check   Op = "check"
	Start   Op = "start"
	Stop    Op = "stop"
	Remove  Op = "remove"
	Dial    Op = "dial"
	Changes Op = "changes"
)

// Hook is called within every operation, before that has any effect; the id
// of a Check is empty. It may block, and an error becomes the operation's. A
// Start that fails by it leaves files, as a real one may.
type Hook func(ctx context.Context, op Op, id string) error

// Server is given the inner end of each connection, on a goroutine of its own,
// and closes it.
type Server func(id string, port int, c net.Conn)

// Fake is a sandbox.Backend. What it holds outlives any Manager, as real
// instances do. Everything about it may be changed at any time.
type Fake struct {
	name   string
	served sync.WaitGroup

	mu        sync.Mutex
	hooked    Hook
	server    Server
	lost      []string
	instances map[string]*instance
	faults    []string
}

type instance struct {
	busy    Op // the Start, Stop or Remove that is under way
	running bool
	hung    bool
	starts  int
	ended   chan struct{} // closed while it does not run
	reason  sandbox.EndReason
	changes []byte
	saves   int           // how often it was saved
	warmFor string        // whose alone a warm instance is; "": anybody's
	warmed  *sandbox.Spec // what a Warmer was told, if it was one that began it
	owner   string        // the first whose it was

	suspended bool // it has memory to go on with

	limits *sandbox.Limits // what a Resizer gave it
	disk   int64           // what a Resizer grew its disk to

	access  sandbox.AccessList // what is locked, by a Locker or as it was started
	writers []sandbox.Writer   // what is in a Locker's way
}

var _ sandbox.Backend = (*Fake)(nil)

// New returns a wall of that name without instances. It refuses connections, and
// each Stop of an instance loses its processes.
func New(name string) *Fake {
	return &Fake{name: name, lost: []string{"processes"}, instances: make(map[string]*instance)}
}

// SetHook sets what is called within the operations to come; nil is nothing.
func (f *Fake) SetHook(h Hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooked = h
}

// SetServer sets what answers the connections to come; nil refuses them.
func (f *Fake) SetServer(s Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server = s
}

// SetLost sets what each Stop to come reports as lost.
func (f *Fake) SetLost(lost ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = slices.Clone(lost)
}

// Die ends a running instance as if by itself.
func (f *Fake) Die(id string, reason sandbox.EndReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil && b.running {
		b.end(reason)
	}
}

// Hang makes the guest of a running instance silent; the instance goes on.
func (f *Fake) Hang(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		b.hung = true
	}
}

// SetChanges sets what Changes writes for an instance.
func (f *Fake) SetChanges(id string, stream []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		b.changes = slices.Clone(stream)
	}
}

// Plant makes a running instance of which nobody has a record.
func (f *Fake) Plant(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances[id] = &instance{running: true, starts: 1, ended: make(chan struct{})}
}

// Running lists the IDs of the running instances, in order.
func (f *Fake) Running() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id, b := range f.instances {
		if b.running {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Starts returns how often the instance was started.
func (f *Fake) Starts(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		return b.starts
	}
	return 0
}

// Faults lists the breaches of Backend's contract so far.
func (f *Fake) Faults() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.faults)
}

// Close waits until every connection has been served.
func (f *Fake) Close() { f.served.Wait() }

// Name implements sandbox.Backend.
func (f *Fake) Name() string { return f.name }

// Capabilities implements sandbox.Backend. What a Fake alone can't do, those that
// embed it add.
func (f *Fake) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Strength: sandbox.StrengthOf(f.name), HostDirs: true, Images: true, Volumes: true, Snapshots: f}
}

// Check implements sandbox.Backend: every promise would be kept.
func (f *Fake) Check(ctx context.Context, _ sandbox.Spec) ([]sandbox.Enforcement, error) {
	if err := f.hook(ctx, Check, ""); err != nil {
		return nil, err
	}
	return f.enforced(), nil
}

func (f *Fake) enforced() []sandbox.Enforcement {
	promises := []string{
		"filesystem", "network", "privileges", sandbox.LimitMemory, sandbox.LimitCPUs,
		sandbox.LimitPIDs, sandbox.LimitDisk, sandbox.LimitInodes, "isolation",
	}
	out := make([]sandbox.Enforcement, 0, len(promises))
	for _, p := range promises {
		out = append(out, sandbox.Enforcement{Promise: p, Enforced: true, Mechanism: "make-believe"})
	}
	return out
}

// Start implements sandbox.Backend.
func (f *Fake) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	b, done := f.enter(Start, sb.ID, true)
	defer done()
	if f.isRunning(b) {
		return nil, f.fault("start of %s, which runs", sb.ID)
	}
	if err := f.own(b, sb); err != nil {
		return nil, err
	}
	if err := f.hook(ctx, Start, sb.ID); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.running, b.hung, b.reason = true, false, ""
	b.ended = make(chan struct{})
	b.starts++
	b.access, b.writers = sb.Access, nil
	return f.enforced(), nil
}

// own enters the first owner of an instance, and refuses any other.
func (f *Fake) own(b *instance, sb *sandbox.Sandbox) error {
	if sb.TrafficToken != "" {
		return f.fault("instance %s was told the token of its ports", sb.ID)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.owner == "" && b.warmed == nil {
		b.owner = sb.Owner
	}
	if b.owner == sb.Owner {
		return nil
	}
	f.faults = append(f.faults, fmt.Sprintf("start of %s for %q, which is %q's", sb.ID, sb.Owner, b.owner))
	return fmt.Errorf("start of %s: it is another's", sb.ID)
}

// Stop implements sandbox.Backend.
func (f *Fake) Stop(ctx context.Context, id string) ([]string, error) {
	b, done := f.enter(Stop, id, false)
	defer done()
	if err := f.hook(ctx, Stop, id); err != nil {
		return nil, err
	}
	if b == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.running {
		b.end(sandbox.EndStopped)
	}
	return slices.Clone(f.lost), nil
}

// Remove implements sandbox.Backend.
func (f *Fake) Remove(ctx context.Context, id string) error {
	b, done := f.enter(Remove, id, false)
	defer done()
	if err := f.hook(ctx, Remove, id); err != nil {
		return err
	}
	if f.isRunning(b) {
		return f.fault("remove of %s, which runs", id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, id)
	return nil
}

// Dial implements sandbox.Backend.
func (f *Fake) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := f.hook(ctx, Dial, id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.instances[id]
	if b == nil || !b.running || b.hung || f.server == nil {
		return nil, fmt.Errorf("dial port %d of instance %s: refused", port, id)
	}
	outer, inner := net.Pipe()
	serve := f.server
	f.served.Go(func() { serve(id, port, inner) })
	return outer, nil
}

// Wait implements sandbox.Backend.
func (f *Fake) Wait(ctx context.Context, id string) (sandbox.EndReason, error) {
	f.mu.Lock()
	b := f.instances[id]
	if b == nil {
		f.mu.Unlock()
		return sandbox.EndCrashed, nil
	}
	ended := b.ended
	f.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return b.reason, nil
}

// Alive implements sandbox.Backend.
func (f *Fake) Alive(_ context.Context, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.instances[id]
	return b != nil && b.running && !b.hung
}

// Instances implements sandbox.Backend.
func (f *Fake) Instances(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.instances)), nil
}

// Changes implements sandbox.Backend.
func (f *Fake) Changes(ctx context.Context, sb *sandbox.Sandbox, _ sandbox.ChangesOptions, w io.Writer) error {
	id := sb.ID
	if err := f.hook(ctx, Changes, id); err != nil {
		return err
	}
	f.mu.Lock()
	b := f.instances[id]
	if b == nil {
		f.mu.Unlock()
		return fmt.Errorf("changes of instance %s: there is none", id)
	}
	stream := b.changes
	f.mu.Unlock()
	if len(stream) == 0 {
		return nil
	}
	_, err := w.Write(stream)
	return err
}

func (f *Fake) hook(ctx context.Context, op Op, id string) error {
	f.mu.Lock()
	h := f.hooked
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	return h(ctx, op, id)
}

// enter marks op as under way on an instance, which it makes if create is set.
func (f *Fake) enter(op Op, id string, create bool) (*instance, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.instances[id]
	if b == nil {
		if !create {
			return nil, func() {}
		}
		b = &instance{ended: make(chan struct{}), reason: sandbox.EndCrashed}
		close(b.ended)
		f.instances[id] = b
	}
	if b.busy != "" {
		f.faults = append(f.faults, fmt.Sprintf("%s of %s during its %s", op, id, b.busy))
		return b, func() {}
	}
	b.busy = op
	return b, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		b.busy = ""
	}
}

func (f *Fake) isRunning(b *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return b != nil && b.running
}

func (f *Fake) fault(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
	return fmt.Errorf(format, args...)
}

func (b *instance) end(reason sandbox.EndReason) {
	b.running, b.reason = false, reason
	close(b.ended)
}
