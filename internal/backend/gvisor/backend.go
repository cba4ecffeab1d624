package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/cgroup"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/hostimage"
	"github.com/carboy-sandbox/carboy/internal/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Name is the wall's name in a Spec.
const Name = "gvisor"

// Options place a Backend. All paths are absolute.
type Options struct {
	State string // boxes live in State/boxes
	Cache string // the guest agent, the host image's skeleton and disk templates
	// Exe is the binary to execute again; default: this one.
	Exe string
	Log *slog.Logger // default: discard
	// DebugDir receives gVisor's debug logs where it is set.
	DebugDir string
}

// Backend is the gVisor wall. Open makes one.
type Backend struct {
	opts     Options
	boxes    string
	agent    string // the guest agent's binary on this host
	cgroups  *cgroup.Host
	diskErr  error     // why boxes get no disk image, or nil
	rootless *rootless // nil for root

	images *disk.Images

	imageMu sync.Mutex
}

var _ sandbox.Backend = (*Backend)(nil)

// Open looks at what this machine can do and puts the guest agent in place.
// From then on this process reaps the boxes whose launchers have left.
func Open(ctx context.Context, opts Options) (*Backend, error) {
	if opts.Exe == "" {
		opts.Exe = "/proc/self/exe"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		opts: opts, boxes: filepath.Join(opts.State, "boxes"),
		images: disk.New(filepath.Join(opts.Cache, "disk")),
	}
	if err := os.MkdirAll(b.boxes, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	var err error
	if b.agent, err = installAgent(opts.Cache); err != nil {
		return nil, err
	}
	if b.cgroups, err = cgroup.Find("/", cgroupNamespace(opts.State)); err != nil {
		return nil, fmt.Errorf("look at cgroups: %w", err)
	}
	if os.Geteuid() != 0 {
		if b.rootless, err = findRootless(); err != nil {
			return nil, err
		}
	}
	b.diskErr = disk.Available()
	return b, nil
}

// Close gives up what the Backend holds; boxes go on. Where there are none,
// the home's place among the cgroups goes too.
func (b *Backend) Close() error { return errors.Join(b.cgroups.Prune(), b.cgroups.Close()) }

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return Name }

var validID = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// dir returns a box's directory. IDs are ours, but they come back from a
// database and over the wire: nothing else becomes a path.
func (b *Backend) dir(id string) (string, error) {
	if !validID.MatchString(id) {
		return "", sandbox.Errorf(sandbox.Invalid, "sandbox id %q: not one of ours", id)
	}
	return filepath.Join(b.boxes, id), nil
}

// box is what is remembered of a running box.
type box struct {
	Sentry   procid.ID `json:"sentry"`
	Gofer    procid.ID `json:"gofer"`
	OOMKills uint64    `json:"oom_kills"` // the cgroup's count when the box started
}

func readBox(dir string) (*box, error) {
	raw, err := os.ReadFile(filepath.Join(dir, fileBox))
	if err != nil {
		return nil, err
	}
	var bx box
	if err := json.Unmarshal(raw, &bx); err != nil {
		return nil, fmt.Errorf("read %s: %w", fileBox, err)
	}
	return &bx, nil
}

func (bx *box) write(dir string) error {
	tmp := filepath.Join(dir, fileBox+".new")
	if err := writeJSON(tmp, bx); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, fileBox))
}

// Boxes implements sandbox.Backend: a directory or a cgroup is enough.
func (b *Backend) Boxes(context.Context) ([]string, error) {
	entries, err := os.ReadDir(b.boxes)
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
		if validID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// image returns the host image's skeleton, made on first use and again when
// what it was made from has changed.
func (b *Backend) image(ctx context.Context) (hostimage.Root, error) {
	b.imageMu.Lock()
	defer b.imageMu.Unlock()
	return hostimage.Skeleton(ctx, filepath.Join(b.opts.Cache, "hostimage"), hostimage.Options{})
}

// Alive implements sandbox.Backend: a zombie is dead, and so is a sentry
// whose guest does not answer.
func (b *Backend) Alive(ctx context.Context, id string) bool {
	dir, err := b.dir(id)
	if err != nil {
		return false
	}
	bx, err := readBox(dir)
	return err == nil && procid.Alive(bx.Sentry) && b.healthy(ctx, id) == nil
}

// Wait implements sandbox.Backend.
func (b *Backend) Wait(ctx context.Context, id string) (sandbox.EndReason, error) {
	dir, err := b.dir(id)
	if err != nil {
		return "", err
	}
	bx, err := readBox(dir)
	if errors.Is(err, os.ErrNotExist) {
		return sandbox.EndCrashed, nil
	}
	if err != nil {
		return "", err
	}
	h, err := procid.Open(bx.Sentry)
	if err == nil {
		defer h.Close()
		if err := b.waitEnd(ctx, id, bx, h); err != nil {
			return "", err
		}
	}
	return b.endReason(id, bx), nil
}

// waitEnd blocks until the box is of no more use: its sentry or its gofer has
// ended, or one of its processes was killed for memory. The last may be one
// that only holds a guest process's memory; the guest does not get over it,
// so the rest is ended too.
func (b *Backend) waitEnd(ctx context.Context, id string, bx *box, sentry *procid.Handle) error {
	g, err := procid.Open(bx.Gofer)
	if err != nil {
		return nil // a sentry without its gofer serves no file any more
	}
	defer g.Close()
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 3)
	for _, h := range []*procid.Handle{sentry, g} {
		go func() {
			_, err := h.Wait(either)
			done <- err
		}()
	}
	go func() {
		if err := b.awaitOOM(either, id, bx.OOMKills); err != nil {
			<-either.Done() // not announced here: the others tell
			done <- context.Cause(either)
			return
		}
		done <- sentry.Kill()
	}()
	first := <-done
	cancel()
	<-done
	<-done
	return first
}

func (b *Backend) awaitOOM(ctx context.Context, id string, before uint64) error {
	g, err := b.cgroups.Open(id)
	if err != nil {
		return err
	}
	return g.AwaitOOM(ctx, before)
}

// endReason reads why a box that is gone has ended.
func (b *Backend) endReason(id string, bx *box) sandbox.EndReason {
	boot, err := procid.BootID()
	if err == nil && bx.Sentry.BootID != boot {
		return sandbox.EndRebooted
	}
	if kills, err := b.oomKills(id); err == nil && kills > bx.OOMKills {
		return sandbox.EndOutOfMemory
	}
	return sandbox.EndCrashed
}
