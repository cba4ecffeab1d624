package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Store is the images of one daemon, in one directory:
//
//	layers/sha256-CHAINID/fs        a layer's tree over those below it; beside it layer.json
//	manifests/DIGEST.json           an image: its configuration and layers
//	names/HASH OF OWNER/HASH.json   what one owner calls an image
//	partial/                        blobs that are not whole yet
//	tmp/N/                          work of one process, swept when it is dead
//
// Whatever is there under its own name is whole: it was made under another,
// synced, and renamed. It is safe for use by several goroutines; only one
// process at a time may collect garbage.
type Store struct {
	dir     string
	opts    Options
	outside http.RoundTripper
	tmp     string   // this process's own
	lock    *os.File // keeps tmp from being swept

	jobs    chan struct{} // pulls and imports that run
	mu      sync.Mutex
	pins    map[string]int // digests of manifests and layers that a job is at work on
	flights map[string]*flight

	records sync.Mutex // held where the record of an image is read and written again
}

// maxJobs is how many pulls and imports run at once.
const maxJobs = 16

// Open opens the store in dir, or makes one, and takes away what dead
// processes left half done.
func Open(dir string, o Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	s := &Store{
		dir: dir, opts: o.withDefaults(), jobs: make(chan struct{}, maxJobs),
		pins: map[string]int{}, flights: map[string]*flight{}, outside: o.Transport,
	}
	if o.Transport == nil {
		s.outside = outsideTransport()
	}
	for _, sub := range []string{"layers", "manifests", "names", "partial", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open images: %w", err)
		}
	}
	if err := s.claim(); err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Unpack == nil {
		lo := layer.Options{UserXattr: o.UserXattr}
		o.Unpack = func(ctx context.Context, r io.Reader, dir string, below []string) (layer.Result, error) {
			lo := lo
			lo.Below = below
			return layer.Unpack(ctx, r, dir, lo)
		}
	}
	if o.Stands == nil {
		lo := layer.Options{UserXattr: o.UserXattr}
		o.Stands = func(ctx context.Context, trees []string) (bool, error) { return layer.Stands(ctx, trees, lo) }
	}
	if o.Remove == nil {
		o.Remove = func(dir string) error { return beneath.RemoveAll(context.Background(), dir) }
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Room == nil {
		o.Room = func(string, string) error { return nil }
	}
	if o.Step == nil {
		o.Step = func(string) error { return nil }
	}
	o.Limits.Manifest = cmp.Or(o.Limits.Manifest, 4<<20)
	o.Limits.Config = cmp.Or(o.Limits.Config, 8<<20)
	o.Limits.Blob = cmp.Or(o.Limits.Blob, 16<<30)
	o.Limits.Archive = cmp.Or(o.Limits.Archive, 64<<30)
	return o
}

// claim makes this process's directory below tmp, and sweeps those whose
// process is dead: the kernel has dropped its lock.
func (s *Store) claim() error {
	root := filepath.Join(s.dir, "tmp")
	all, err := lockDir(root, unix.LOCK_EX) // one process at a time, so that none sweeps what is not locked yet
	if err != nil {
		return err
	}
	defer all.Close()
	old, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range old {
		dir := filepath.Join(root, e.Name())
		l, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err == nil {
			err = errors.Join(s.opts.Remove(dir), l.Close())
		}
		if err != nil {
			s.opts.Log.Warn("sweep of unfinished image work", "dir", dir, "error", err)
		}
	}
	if s.tmp, err = os.MkdirTemp(root, ""); err != nil {
		return err
	}
	s.lock, err = lockDir(s.tmp, unix.LOCK_EX)
	return err
}

func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	return f, nil
}

// Close ends the use of the store: nothing may be running. A process that dies
// without it leaves its temporary directory to the next Open.
func (s *Store) Close() error {
	return errors.Join(s.opts.Remove(s.tmp), s.lock.Close())
}

// job is one pull or import.
type job struct {
	s     *Store
	owner string
	rep   *reporter
	mu    sync.Mutex
	pins  []string

	flights []string // that it made use of; guarded by Store.mu
}

// begin counts a job in, until its end.
func (s *Store) begin(owner string, progress func(Progress)) (*job, error) {
	if owner == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "images: whose they are to be is not said")
	}
	if err := s.opts.Room(owner, "keep an image"); err != nil {
		return nil, err
	}
	select {
	case s.jobs <- struct{}{}:
		return &job{s: s, owner: owner, rep: &reporter{now: s.opts.Now, to: progress, last: map[string]mark{}}}, nil
	default:
		return nil, sandbox.Errorf(sandbox.Exhausted, "%d pulls and imports are running already", maxJobs).WithHint("try again when one has ended")
	}
}

// pin keeps what has these digests from being collected until the job ends.
func (j *job) pin(digests ...string) {
	j.mu.Lock()
	j.pins = append(j.pins, digests...)
	j.mu.Unlock()
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	for _, d := range digests {
		j.s.pins[d]++
	}
}

func (j *job) end() {
	j.s.mu.Lock()
	for _, d := range j.pins {
		if j.s.pins[d]--; j.s.pins[d] == 0 {
			delete(j.s.pins, d)
		}
	}
	for _, key := range j.flights {
		if f := j.s.flights[key]; f != nil {
			if f.users--; f.users == 0 {
				delete(j.s.flights, key)
			}
		}
	}
	j.s.mu.Unlock()
	<-j.s.jobs
}

// writeRecord puts v at path, whole or not at all. step names it to Step.
func (s *Store) writeRecord(step, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write image record: %w", err)
	}
	if err := s.opts.Step(step); err != nil {
		return err
	}
	err = durable.Write(path, b, durable.Options{Temp: s.tmp, Step: func(done string) error {
		if done == durable.Written {
			return s.opts.Step(step + "-rename")
		}
		return nil
	}})
	if err != nil {
		return fmt.Errorf("write image record: %w", err)
	}
	return nil
}

// readRecord reads what writeRecord wrote. Where nothing is, the error is
// fs.ErrNotExist.
func readRecord(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("image record %s: %w", path, err)
	}
	return nil
}

// hashOf names files for text that anybody may choose.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (s *Store) layerDir(id string) string {
	return filepath.Join(s.dir, "layers", "sha256-"+strings.TrimPrefix(id, "sha256:"))
}

func (s *Store) layerTree(id string) string { return filepath.Join(s.layerDir(id), "fs") }

func (s *Store) manifestPath(digest string) string {
	return filepath.Join(s.dir, "manifests", strings.TrimPrefix(digest, "sha256:")+".json")
}

func (s *Store) ownerDir(owner string) string { return filepath.Join(s.dir, "names", hashOf(owner)) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
