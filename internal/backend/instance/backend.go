package instance

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/guestbin"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Images has the unpacked layers of images. A Backend without one has the host
// image alone.
type Images interface {
	ByDigest(ctx context.Context, digest string) (image.Image, error)
}

// Options place a Backend. All paths are absolute.
type Options struct {
	State string // instances live in State/boxes/WALL
	// Cache has the guest agent, the host image's skeleton and disk templates. Where it
	// is "" no instance can be started: what is there can be stopped and removed, also
	// where the disk is full.
	Cache  string
	Log    *slog.Logger // default: discard
	Images Images       // default: the host image alone
	// Snapshots has what instances may lie over besides; nil: there are none.
	Snapshots Snapshots
	// Disks hold what instances write while there is no room for it; nil: nothing does.
	Disks *Disks
	// DebugDir receives a wall's debug logs where it is set.
	DebugDir string
	// Start is how long the agent of an instance that starts may take to answer; 0:
	// sandbox.DefaultStartTime.
	Start time.Duration
}

// Wall is what one wall adds to a Backend: what it promises, and how its instances are
// started.
type Wall struct {
	Name     string // in a Spec
	Strength sandbox.Strength

	// Promises says how isolation and privileges are kept. It refuses a spec that the
	// wall can't have.
	Promises func(spec sandbox.Spec, owner string) (isolation, privileges string, err error)
	// Arrange completes an instance's layout and what its agent is told. Of one that goes
	// on from memory it makes sure that it can.
	Arrange func(sb *sandbox.Sandbox, lay *Layout, cfg *control.Config) error
	// Launch starts an instance's processes and returns their pids, that of the one which
	// the instance lives by first.
	Launch func(ctx context.Context, sb *sandbox.Sandbox, lay *Layout, agent *Handover) (pids []int, err error)

	// Limits are what the host enforces for an instance of these limits.
	Limits func(sandbox.Limits) cgroup.Limits
	// Seen says in a Resized which limits can change only with a start, and what of a
	// running instance does not follow; nil: all of it does.
	Seen func(from, to sandbox.Limits, out *sandbox.Resized)
	// OOMEndsInstance: the instance does not get over the loss of one of its processes
	// for want of memory.
	OOMEndsInstance bool
	// OwnCommands: commands are on the host's kernel, and have a control group of
	// their own within the instance's, which keeps the Spec's limits by itself.
	OwnCommands bool
	// Processors chooses those of the host that the commands of an instance run on, for a
	// wall with OwnCommands.
	Processors func(id string, cpus float64) []int
	// Stray reports whether a process of these arguments belongs to the instance
	// at dir, for those that a daemon started and did not live to note.
	Stray func(args []string, dir string) bool
}

// Backend makes the instances of one wall. Its methods may be called from several
// goroutines; those that a sandbox.Backend has are documented there.
type Backend struct {
	wall      Wall
	opts      Options
	instances string
	trash     string // what is being deleted
	program   string // the guest agent's binary on this host
	cgroups   *cgroup.Host
	diskErr   error // why instances get no disk image, or nil
	roles     *role.Runner

	images *disk.Images

	imageMu   sync.Mutex
	deletions sync.WaitGroup
}

// Open looks at what this machine can do and puts the guest agent in place.
// From then on this process reaps the instances whose launchers have left.
func Open(wall Wall, opts Options) (*Backend, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Start = cmp.Or(opts.Start, sandbox.DefaultStartTime)
	h := &Backend{
		wall: wall, opts: opts,
		instances: filepath.Join(opts.State, "boxes", wall.Name), trash: filepath.Join(opts.State, "trash", wall.Name),
		images: disk.New(filepath.Join(opts.Cache, "disk")),
	}
	for _, dir := range []string{h.instances, h.trash} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	var err error
	if opts.Cache != "" {
		if h.program, err = installAgent(opts.Cache); err != nil {
			return nil, err
		}
	}
	if h.cgroups, err = cgroup.Find("/", cgroupNamespace(h.instances)); err != nil {
		return nil, fmt.Errorf("look at cgroups: %w", err)
	}
	if wall.OwnCommands {
		h.cgroups.AddCPUSets()
	}
	if h.roles, err = role.NewRunner(opts.State); err != nil {
		return nil, errors.Join(err, h.cgroups.Close())
	}
	h.diskErr = disk.Available()
	return h, h.sweep()
}

// Close gives up what the Backend holds, once removed instances are deleted; instances go
// on. Where there are none, the home's place among the cgroups goes too.
func (b *Backend) Close() error {
	b.deletions.Wait()
	return errors.Join(b.cgroups.Prune(), b.cgroups.Close())
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return b.wall.Name }

// Roles starts what a wall needs processes of its own for.
func (b *Backend) Roles() *role.Runner { return b.roles }

// Rootless reports whether instances are made without root.
func (b *Backend) Rootless() bool { return b.roles.Rootless() }

var validID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9_]{1,64}$`) })

// dir returns an instance's directory. IDs are ours, but they come back from a
// database and over the wire: nothing else becomes a path.
func (b *Backend) dir(id string) (string, error) {
	if !validID().MatchString(id) {
		return "", sandbox.Errorf(sandbox.Invalid, "sandbox id %q: not one of ours", id)
	}
	return filepath.Join(b.instances, id), nil
}

// record is what is remembered of a running instance: it has ended when one of
// its processes has.
type record struct {
	Processes []procid.ID `json:"processes"`
	OOMKills  uint64      `json:"oom_kills"` // the cgroup's count when the instance started
}

// identify finds an instance's processes by their pids, so that they are
// known again after this process.
func identify(pids []int) ([]procid.ID, error) {
	var out []procid.ID
	for _, pid := range pids {
		id, err := procid.Of(pid)
		if err != nil {
			return nil, fmt.Errorf("find process %d of the instance: %w", pid, err)
		}
		out = append(out, id)
	}
	return out, nil
}

func (r *record) alive() bool {
	for _, p := range r.Processes {
		if !procid.Alive(p) {
			return false
		}
	}
	return len(r.Processes) > 0
}

func readRecord(dir string) (*record, error) {
	raw, err := os.ReadFile(filepath.Join(dir, fileInstance))
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", fileInstance, err)
	}
	return &r, nil
}

// note remembers the processes of the instance of a layout, which has just been
// composed.
func (b *Backend) note(p *Layout, r record) error {
	if err := markSince(p.Dir); err != nil {
		return err
	}
	if err := durable.Sweep(p.Dir); err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(p.Dir, fileInstance), raw, durable.Options{})
}

// linkEnd opens the network namespace of a running instance: that of the process
// that it lives by.
func (b *Backend) linkEnd(id string) (*os.File, error) {
	dir, err := b.dir(id)
	if err != nil {
		return nil, err
	}
	r, err := readRecord(dir)
	if err != nil || len(r.Processes) == 0 {
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is not running", id)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", r.Processes[0].PID))
	if err != nil {
		return nil, err
	}
	if !procid.Alive(r.Processes[0]) { // the number may be another's by now
		ns.Close()
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is not running", id)
	}
	return ns, nil
}

// Capabilities are those of every wall of this package's making. One whose
// instances can be suspended adds that.
func (b *Backend) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Strength: b.wall.Strength, HostDirs: true, Images: true, Volumes: true,
		Link: sandbox.LinkNetNS, LinkEnd: b.linkEnd, Snapshots: b, Disks: b, Usage: b, Warm: b, Resize: b, Whole: b, Lock: b,
	}
}

// Instances implements sandbox.Backend: a directory or a cgroup is enough.
func (b *Backend) Instances(context.Context) ([]string, error) {
	entries, err := os.ReadDir(b.instances)
	if err != nil {
		return nil, err
	}
	groups, err := b.cgroups.List()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, e := range entries {
		seen[e.Name()] = true
	}
	for _, g := range groups {
		seen[g] = true
	}
	ids := make([]string, 0, len(seen))
	for id := range seen {
		if validID().MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// hostImage returns the host image's skeleton, made on first use and again
// when what it was made from has changed.
func (b *Backend) hostImage(ctx context.Context) (hostimage.Root, error) {
	b.imageMu.Lock()
	defer b.imageMu.Unlock()
	return hostimage.Skeleton(ctx, filepath.Join(b.opts.Cache, "hostimage"), hostimage.Options{})
}

// cgroupNamespace keeps the groups of two homes, and of two walls, apart.
func cgroupNamespace(instances string) string {
	sum := sha256.Sum256([]byte(instances))
	return hex.EncodeToString(sum[:8])
}

// installAgent puts the embedded guest agent where instances can show it, under a
// name that tells its content.
func installAgent(cache string) (string, error) {
	bin, err := guestbin.Binary()
	if err != nil {
		return "", err
	}
	digest, err := guestbin.Digest()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "guest")
	path := filepath.Join(dir, FileAgent+"-"+digest[:16])
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(bin)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	if err := durable.Write(path, bin, durable.Options{Mode: 0o555}); err != nil {
		return "", fmt.Errorf("install guest agent: %w", err)
	}
	return path, nil
}

// WriteJSON writes v to a private file.
func WriteJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
