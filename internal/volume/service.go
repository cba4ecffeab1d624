// Package volume keeps volumes: disks of their own that outlive the sandboxes
// that mount them, and that several may mount at once. It makes and removes
// them, says who has which, and lets their content be read and written by whom
// it gave a token.
//
// A volume is a directory below State/volumes, with its record in it: it is
// there whole, or not at all, whenever the daemon is killed. The package refuses
// to remove one that a sandbox has, names that are taken, and more volumes or
// bytes than its options allow. Others' volumes do not exist for a caller.
package volume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/content"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Defaults of Options.
const (
	DefaultSize     = 8 << 30
	DefaultMaxSize  = 64 << 30
	DefaultPerOwner = 100
)

// MinSize is the smallest volume, in bytes.
const MinSize = 16 << 20

// bytesPerInode is how much of a volume's size there is for each of its files,
// unless its maker says otherwise.
const bytesPerInode = 16 << 10

// Options are what a Service works with. State, Cache and Launch are required.
type Options struct {
	State string // volumes live in State/volumes
	Cache string // templates of disks live in Cache/disk
	// Launch is content.Options.Launch.
	Launch func(*exec.Cmd) error
	// Roles starts what fills volumes, and tells what was changed in them.
	Roles origin.Runner
	// Delete deletes a directory in which files belong to ids that this process
	// is not; nil: there can be none.
	Delete func(dir string) error

	// Room refuses to make one where the disk has too little room for any; what is a word for
	// it. Default: there is always some.
	Room func(owner, what string) error

	Size     int64 // bytes of one that asks for none
	MaxSize  int64 // the most that one may ask for
	PerOwner int   // how many one owner may have

	Idle time.Duration    // content.Options.Idle
	Log  *slog.Logger     // default: none
	Now  func() time.Time // default: time.Now
	Rand io.Reader        // default: crypto/rand
}

// Volume is one of them.
type Volume struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner"`
	Name      string    `json:"name"`
	Size      int64     `json:"size"`   // bytes
	Inodes    int64     `json:"inodes"` // files
	CreatedAt time.Time `json:"created_at"`

	// Cache is the directory whose builds' caches it keeps; the zero value: it is no
	// cache. Path is where that was seen last.
	Cache sandbox.HostDir `json:"cache,omitzero"`
	// Home says whose home's directories it keeps for Cache, such as "claude"; "": it
	// keeps caches of builds.
	Home string `json:"home,omitempty"`

	// From is the directory of which it began as a copy; the zero value: it began empty.
	From sandbox.HostDir `json:"from,omitzero"`

	// Unenforced says why Size and Inodes are not kept to; "": they are.
	Unenforced string `json:"unenforced,omitempty"`
}

// Users says who has volumes. *sandbox.Manager is one, and documents each
// method.
type Users interface {
	WithVolumes(ctx context.Context, f func(ctx context.Context) error) error
	VolumeUsers(id string) []string
}

// Service is the volumes of one home. Its methods may be called from several
// goroutines.
type Service struct {
	o       Options
	log     *slog.Logger
	root    string // of all volumes
	images  *disk.Images
	diskErr error // why a new volume gets no disk image, or nil
	key     []byte
	content *content.Pool
	users   Users // set by Bind

	most   func(owner string) int   // guarded by making; see Bound
	lives  func(source string) bool // guarded by mu; see Live
	making sync.Mutex               // held while names and counts are looked at, and taken
	asked  map[string]int           // how often a cache that was made by this service was asked for; guarded by making

	mu      sync.Mutex
	volumes map[string]Volume // by ID
	begun   map[string]Volume // those that are being made, whose names are taken

	deletions sync.WaitGroup
}

// Open reads the volumes that there are, and ends what an earlier daemon left
// half done. Call Bind before Remove.
func Open(o Options) (*Service, error) {
	s := &Service{
		o: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), root: tree.Root(o.State),
		images: disk.New(filepath.Join(o.Cache, "disk")), diskErr: disk.Available(), volumes: map[string]Volume{}, begun: map[string]Volume{}, asked: map[string]int{},
	}
	s.o.Size, s.o.MaxSize = cmp.Or(o.Size, DefaultSize), cmp.Or(o.MaxSize, DefaultMaxSize)
	s.o.PerOwner = cmp.Or(o.PerOwner, DefaultPerOwner)
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of volumes: %w", err)
	}
	var err error
	if s.key, err = openKey(filepath.Join(s.root, keyName)); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.content = content.New(content.Options{Launch: o.Launch, Rootless: os.Geteuid() != 0, Idle: o.Idle, Log: s.log})
	return s, nil
}

// Bind tells who uses volumes. It is called once, before Remove.
func (s *Service) Bind(u Users) { s.users = u }

// Close ends the processes that look into volumes, and waits for what is being
// deleted.
func (s *Service) Close() {
	s.content.Close()
	s.deletions.Wait()
}

// New is what a caller wants of a volume.
type New struct {
	Name   string
	Size   int64 // bytes; 0: the default
	Inodes int64 // files; 0: one for each 16 KiB
	// From is a directory of the host of which it is to be a copy, which the caller may read; the zero value: it is empty.
	From sandbox.HostDir
	// Skipped, if set, is told what of From was not copied, and why, safe to print: once the volume is there.
	Skipped func(what string)
}

// maxName is the longest name, in bytes.
const maxName = 128

// checkName wants what E2B takes for a name: letters, digits, "_" and "-".
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, nameLetters) != "" {
		return sandbox.Errorf(sandbox.Invalid, "volume name %.160q: not a volume's name", name).
			WithHint("1 to %d of a-z, A-Z, 0-9, _ and -", maxName)
	}
	if strings.HasPrefix(name, "-") {
		return sandbox.Errorf(sandbox.Invalid, "volume name %q: it starts with -", name).WithHint("begin with a letter")
	}
	if sandbox.ValidVolumeID(name) {
		return sandbox.Errorf(sandbox.Invalid, "volume name %s: it looks like an ID", name).WithHint("choose another one")
	}
	return nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// size fills in what n leaves open, and refuses what can't be.
func (s *Service) size(c sandbox.Caller, n New) (disk.Size, error) {
	size := disk.Size{Bytes: cmp.Or(n.Size, s.o.Size), Inodes: n.Inodes}
	switch {
	case size.Bytes < MinSize:
		return size, sandbox.Errorf(sandbox.Invalid, "volume size %s: too small", sandbox.SizeText(size.Bytes)).WithHint("at least %dm", MinSize>>20)
	case size.Bytes > s.o.MaxSize && !c.Admin:
		return size, sandbox.Errorf(sandbox.Denied, "volume size %s: too large", sandbox.SizeText(size.Bytes)).WithHint("at most %s", sandbox.SizeText(s.o.MaxSize))
	}
	if size.Inodes == 0 {
		size.Inodes = size.Bytes / bytesPerInode
	}
	return size, size.Validate()
}

// Create makes a volume, and fills it where it is to be a copy: of that it tells sandbox.CopiedOf(ctx). It fails with
// Conflict where the owner has one of that name, and with Exhausted where the copy is larger than it.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, n New) (Volume, error) {
	if c.Owner == "" {
		return Volume{}, sandbox.Errorf(sandbox.Denied, "volume: it needs an owner")
	}
	if err := checkName(n.Name); err != nil {
		return Volume{}, err
	}
	size, err := s.size(c, n)
	if err != nil {
		return Volume{}, err
	}
	s.making.Lock()
	v, err := s.begin(c, Volume{Name: n.Name, From: n.From}, size)
	s.making.Unlock()
	if err != nil {
		return Volume{}, err
	}
	return s.finish(ctx, v, size, n.Skipped)
}

// begin takes the name of a volume of which v says what is asked. s.making must be held.
func (s *Service) begin(c sandbox.Caller, v Volume, size disk.Size) (Volume, error) {
	if err := s.room(c, v.Name); err != nil {
		return Volume{}, err
	}
	if s.o.Room != nil {
		if err := s.o.Room(c.Owner, "make a volume"); err != nil {
			return Volume{}, err
		}
	}
	id, err := sandbox.NewVolumeID(s.o.Rand)
	if err != nil {
		return Volume{}, err
	}
	v.ID, v.Owner, v.Size, v.Inodes = id, c.Owner, size.Bytes, size.Inodes
	v.CreatedAt = s.o.Now().UTC().Round(0)
	if s.diskErr != nil {
		v.Unenforced = s.diskErr.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[id] = v
	return v, nil
}

// finish makes what was begun, and tells what was not copied.
func (s *Service) finish(ctx context.Context, v Volume, size disk.Size, skipped func(string)) (Volume, error) {
	left, err := s.make(ctx, v, size)
	s.mu.Lock()
	delete(s.begun, v.ID)
	if err == nil {
		s.volumes[v.ID] = v
	}
	s.mu.Unlock()
	if err != nil {
		return Volume{}, explain(err, v.Name, "make")
	}
	for _, what := range left {
		if skipped != nil {
			skipped(what)
		}
	}
	s.log.Info("volume created", "id", v.ID, "owner", v.Owner, "name", v.Name, "size", v.Size, "unenforced", v.Unenforced)
	return v, nil
}

// Bound has most say how many volumes an owner may have; 0 is Options.PerOwner.
func (s *Service) Bound(most func(owner string) int) {
	s.making.Lock()
	defer s.making.Unlock()
	s.most = most
}

// Live has lives say whether the source of a token does. It is set before anybody asks.
func (s *Service) Live(lives func(source string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives = lives
}

// room refuses a name that is taken, and more volumes than one owner may have.
func (s *Service) room(c sandbox.Caller, name string) error {
	own := append(s.owned(c.Owner), s.unfinished(c.Owner)...)
	if slices.ContainsFunc(own, func(v Volume) bool { return v.Name == name }) {
		return sandbox.Errorf(sandbox.Conflict, "volume %s: the name is taken", name).
			WithHint("choose another name, or carboy volume rm %s", name)
	}
	most := s.o.PerOwner
	if s.most != nil {
		if n := s.most(c.Owner); n > 0 {
			most = n
		}
	}
	if len(own) >= most {
		return sandbox.Errorf(sandbox.Exhausted, "there are %d volumes already", len(own)).WithHint("carboy volume rm NAME")
	}
	return nil
}

func (s *Service) owned(owner string) []Volume { return s.ownedOf(s.volumes, owner) }

// unfinished are an owner's volumes that are being made.
func (s *Service) unfinished(owner string) []Volume { return s.ownedOf(s.begun, owner) }

func (s *Service) ownedOf(volumes map[string]Volume, owner string) []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []Volume
	for _, v := range volumes {
		if v.Owner == owner {
			own = append(own, v)
		}
	}
	return own
}

// List returns the caller's volumes, and everyone's for an admin, oldest first.
func (s *Service) List(_ context.Context, c sandbox.Caller) []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Volume{}
	for _, v := range s.volumes {
		if c.Admin || v.Owner == c.Owner {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b Volume) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Get returns a volume by its ID, or by its name among the caller's own.
func (s *Service) Get(_ context.Context, c sandbox.Caller, ref string) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.volumes[ref]; ok && (c.Admin || v.Owner == c.Owner) {
		return v, nil
	}
	for _, v := range s.volumes {
		if v.Name == ref && v.Owner == c.Owner {
			return v, nil
		}
	}
	return Volume{}, sandbox.Errorf(sandbox.NotFound, "volume %.160q: not found", ref).WithHint("carboy volume ls, or make it: carboy volume create NAME")
}

// Has implements sandbox.Volumes.
func (s *Service) Has(_ context.Context, owner, id string) error {
	s.mu.Lock()
	v, ok := s.volumes[id]
	s.mu.Unlock()
	if !ok || v.Owner != owner {
		return sandbox.Errorf(sandbox.NotFound, "volume %.160q: not found", id).WithHint("carboy volume ls")
	}
	_, err := tree.Find(s.o.State, id)
	return err
}

// Name returns the name of the volume with that ID, "" where there is none.
func (s *Service) Name(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.volumes[id].Name
}

// Used returns how many bytes a volume takes on the host's disk, 0 where that
// is not known, and the names of the sandboxes that have it.
func (s *Service) Used(v Volume) (bytes int64, sandboxes []string) {
	if t, err := tree.Find(s.o.State, v.ID); err == nil {
		bytes, _ = t.Used()
	}
	if s.users != nil {
		sandboxes = s.users.VolumeUsers(v.ID)
	}
	return bytes, sandboxes
}

// Remove deletes a volume and all that it holds. It fails with Conflict while a
// sandbox, running or not, has it.
func (s *Service) Remove(ctx context.Context, c sandbox.Caller, ref string) error {
	v, err := s.Get(ctx, c, ref)
	if err != nil {
		return err
	}
	return s.users.WithVolumes(ctx, func(context.Context) error {
		if users := s.users.VolumeUsers(v.ID); len(users) > 0 {
			err := sandbox.Errorf(sandbox.Conflict, "volume %s: sandbox %s has it", v.Name, users[0])
			if strings.HasPrefix(users[0], "box-") {
				return err.WithHint("it is a session's, unless somebody called one so: carboy session ls, then carboy session rm SESSION; or carboy rm -f %s", users[0])
			}
			return err.WithHint("carboy rm %s", users[0])
		}
		defer s.content.End(v.ID)()
		if err := s.discard(v.ID); err != nil {
			return explain(err, v.Name, "remove")
		}
		s.mu.Lock()
		delete(s.volumes, v.ID)
		s.mu.Unlock()
		s.log.Info("volume removed", "id", v.ID, "owner", v.Owner, "name", v.Name)
		return nil
	})
}

// explain turns what failed into something to show.
func explain(err error, name, doing string) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	if isFull(err) {
		e := sandbox.Errorf(sandbox.Exhausted, "volume %s: could not %s it: the disk of carboy's state is full", name, doing).
			WithHint("free some space there, then try again")
		e.Err = err
		return e
	}
	e := sandbox.Errorf(sandbox.Internal, "volume %s: could not %s it", name, doing).WithHint(sandbox.LogHint)
	e.Err = err
	return e
}
