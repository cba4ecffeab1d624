package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of what is kept.
const (
	maxSecrets        = 256 // of one owner
	MaxSandboxSecrets = 64  // of one sandbox
)

// Options are what a store needs. Dir and KeyFile must be set.
type Options struct {
	// Dir holds the records. It is made, with mode 0700, if it is not there.
	Dir string
	// KeyFile holds the key that they are encrypted with, as age's own tool
	// writes one. It is made when the first secret is put; Dir without it is
	// of no use to anybody.
	KeyFile string
	// MakeDir makes the directory of KeyFile; default: os.MkdirAll.
	MakeDir func(dir string, mode uint32) error
	Now     func() time.Time // default: time.Now
	// Run runs a command that mints a value; default: Exec.
	Run func(ctx context.Context, c Command) ([]byte, error)
	// Changed is told after a secret was put, rotated or removed. It is called
	// with no lock held, and may be nil.
	Changed func(Change)
	// InUse returns the names of the sandboxes that use a secret of an owner,
	// which keeps it from being removed. It must not call the store; nil: none.
	InUse func(owner, name string) []string
	// Most returns how many secrets an owner may have; 0, and a nil Most: as many
	// as are kept at all. It must not call the store.
	Most func(owner string) int
}

// Change is what Options.Changed is told: each holder of a value of this secret
// must ask for it again.
type Change struct {
	Owner   string // "" for a sandbox's own
	Sandbox string // the ID; "" for an owner's
	Name    string
	Removed bool
}

// Store keeps secrets. It is safe for use by several goroutines; of several
// processes, one at a time may have it open.
type Store struct {
	o    Options
	dir  string
	root *os.Root
	lock *os.File
	step func(string) // told before each step, by tests

	mu  sync.RWMutex        // guards the files
	key *age.X25519Identity // nil until the first secret is put

	minted mints
}

// Open opens the store, and makes its directory. It fails with Conflict where
// another process has it open, with Denied where others could read it, and
// with Internal where there are records and the key is missing or is another.
func Open(o Options) (*Store, error) { return open(o, func(string) {}) }

func open(o Options, step func(string)) (_ *Store, err error) {
	if o.MakeDir == nil {
		o.MakeDir = func(dir string, mode uint32) error { return os.MkdirAll(dir, os.FileMode(mode)) }
	}
	if o.Most == nil {
		o.Most = func(string) int { return 0 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Run == nil {
		o.Run = Exec
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, sandbox.DiskError(fmt.Errorf("make the directory of secrets: %w", err), "the disk of "+o.Dir)
	}
	s := &Store{o: o, dir: o.Dir, step: step, minted: mints{byKey: map[string]*mint{}}}
	if s.root, err = os.OpenRoot(o.Dir); err != nil {
		return nil, fmt.Errorf("open the directory of secrets: %w", err)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if err := s.lockDir(); err != nil {
		return nil, err
	}
	_ = durable.Sweep(filepath.Dir(o.KeyFile)) // what is left of keys does no harm
	if s.key, err = readKey(o.KeyFile); err != nil && !errors.Is(err, errNoKey) {
		return nil, err
	}
	return s, s.tryKey()
}

func (s *Store) fault(step string) { s.step(step) }

// lockDir refuses a directory that others can read, and another process.
func (s *Store) lockDir() (err error) {
	if s.lock, err = os.Open(s.dir); err != nil {
		return fmt.Errorf("open the directory of secrets: %w", err)
	}
	if err := private(s.lock, unix.S_IFDIR); err != nil {
		return err
	}
	err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return sandbox.Errorf(sandbox.Conflict, "the secrets in %s are in use by another daemon", s.dir).WithHint("carboy daemon status")
	}
	if err != nil {
		return fmt.Errorf("lock the directory of secrets: %w", err)
	}
	return nil
}

// checkName is the record that tells the key from others. Its name is no
// secret's.
const checkName = "0-key"

// tryKey sweeps what crashes left, and refuses a key that the records were not
// encrypted with.
func (s *Store) tryKey() error {
	count, err := s.sweep()
	if err != nil {
		return err
	}
	if s.key == nil {
		if count == 0 {
			return nil
		}
		return sandbox.Errorf(sandbox.Internal, "the secrets' key file %s is missing", s.o.KeyFile).
			WithHint("put it back; or give the secrets up: rm -r %s", s.dir)
	}
	check, err := s.load(".", checkName)
	if errors.Is(err, errNoRecord) && count == 0 {
		return nil // a crash came between the key and the record
	}
	if err != nil {
		e := sandbox.Errorf(sandbox.Internal, "the secrets in %s can't be read with the key in %s", s.dir, s.o.KeyFile).
			WithHint("put the right key back; or give the secrets up: rm -r %s", s.dir)
		e.Err = err
		return e
	}
	check.wipe()
	return nil
}

// sweep removes what crashes left, and counts the records.
func (s *Store) sweep() (count int, err error) {
	for _, above := range []string{"owners", "sandboxes"} {
		places, err := s.entries(above)
		if err != nil {
			return 0, err
		}
		for _, p := range places {
			names, err := s.names(path.Join(above, p.Name()), true)
			if err != nil {
				return 0, err
			}
			count += len(names)
		}
	}
	_, err = s.names(".", true)
	return count, err
}

// needKey makes the key where there is none.
func (s *Store) needKey() (err error) {
	if s.key == nil {
		if s.key, err = makeKey(s.o, s.fault); err != nil {
			s.key = nil
			return err
		}
	}
	if _, err := s.root.Lstat(checkName + suffix); err == nil {
		return nil
	}
	now := s.o.Now()
	err = s.save(&record{Version: recordVersion, Place: ".", Name: checkName, Created: now, Rotated: now})
	s.fault("checked")
	return err
}

// Close lets another process open the store, and forgets minted values.
func (s *Store) Close() error {
	s.minted.clear()
	err := s.root.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
