// Package snapshot keeps what sandboxes wrote: for each snapshot a directory
// with its record and the layers that others are laid over.
//
// A snapshot gets its name last, once all of it is on the platter, and loses it
// first; what a daemon leaves half made or half deleted, the next one deletes.
// Records are ours, and are read strictly all the same. The package refuses ids
// that are not ours, and layers of a snapshot that it does not have. Who may
// use what is for the domain to say.
package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/snapshot/tree"
)

// Names below the store, and below each snapshot.
const (
	prefixNew   = ".new-"
	prefixTrash = ".trash-"

	fileRecord = "snapshot.json"
	dirLayers  = "layers"
)

// Options tune a Store. The zero value works.
type Options struct {
	// Remove takes a tree away. Default: tree.Remove.
	Remove func(dir string) error
	Log    *slog.Logger // default: discard
	// Step is called by name before each step that changes the store for good,
	// and its error is that step's: how tests make steps fail.
	Step func(name string) error
}

// Store is a sandbox.Snapshots on disk. Its methods may be called from several
// goroutines, but those that change one snapshot not at once.
type Store struct {
	dir       string
	opts      Options
	deletions sync.WaitGroup
}

var _ sandbox.Snapshots = (*Store)(nil)

// New returns the store at dir, which is made if it is not there, for its
// owner alone. It looks at nothing in it: that is for Open.
func New(dir string, opts Options) (*Store, error) {
	if opts.Remove == nil {
		opts.Remove = tree.Remove
	}
	if opts.Step == nil {
		opts.Step = func(string) error { return nil }
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of snapshots: %w", err)
	}
	return &Store{dir: dir, opts: opts}, nil
}

// Close waits until what was deleted is gone.
func (s *Store) Close() error {
	s.deletions.Wait()
	return nil
}

// Open implements sandbox.Snapshots. One whose record can't be read is logged
// and left alone.
func (s *Store) Open(context.Context) ([]sandbox.Snapshot, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var out []sandbox.Snapshot
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, prefixNew) || strings.HasPrefix(name, prefixTrash) {
			s.deletions.Go(func() { s.empty(filepath.Join(s.dir, name)) })
			continue
		}
		if !sandbox.ValidSnapshotID(name) {
			s.opts.Log.Warn("not a snapshot", "name", name)
			continue
		}
		rec, err := s.read(name)
		if err == nil {
			err = durable.Sweep(filepath.Join(s.dir, name))
		}
		if err != nil {
			s.opts.Log.Error("read a snapshot", "id", name, "err", err)
			continue
		}
		out = append(out, rec)
	}
	return out, nil
}

// Keep implements sandbox.Snapshots.
func (s *Store) Keep(
	ctx context.Context, rec sandbox.Snapshot, fill func(context.Context, string) (sandbox.Saved, error),
) (_ sandbox.Snapshot, err error) {
	if !sandbox.ValidSnapshotID(rec.ID) {
		return sandbox.Snapshot{}, fmt.Errorf("keep a snapshot: %q is not an id of ours", rec.ID)
	}
	tmp := filepath.Join(s.dir, prefixNew+rec.ID)
	layers := filepath.Join(tmp, dirLayers)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.opts.Remove(tmp))
		}
	}()
	if err := s.step("make", func() error { return os.MkdirAll(layers, 0o700) }); err != nil {
		return sandbox.Snapshot{}, err
	}
	saved, err := fill(ctx, layers)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	rec.Size, rec.Notes = saved.Size, saved.Notes
	for _, do := range []struct {
		name string
		f    func() error
	}{
		{"record", func() error { return writeRecord(tmp, rec) }},
		{"sync", func() error { return durable.SyncDir(tmp) }},
		{"name", func() error { return durable.Rename(tmp, filepath.Join(s.dir, rec.ID), unix.RENAME_NOREPLACE) }},
	} {
		if err := s.step(do.name, do.f); err != nil {
			return sandbox.Snapshot{}, err
		}
	}
	if err := s.step("sync-name", func() error { return durable.SyncDir(s.dir) }); err != nil {
		return sandbox.Snapshot{}, errors.Join(err, s.discard(rec.ID))
	}
	return rec, nil
}

// step does f unless a test has it fail.
func (s *Store) step(name string, f func() error) error {
	if err := s.opts.Step(name); err != nil {
		return err
	}
	return f()
}

// Put implements sandbox.Snapshots.
func (s *Store) Put(_ context.Context, rec sandbox.Snapshot) error {
	if _, err := s.read(rec.ID); err != nil {
		return err
	}
	return s.step("put", func() error { return writeRecord(filepath.Join(s.dir, rec.ID), rec) })
}

// Delete implements sandbox.Snapshots: at once it is no snapshot any more, and
// its files are deleted in the background.
func (s *Store) Delete(_ context.Context, id string) error {
	if !sandbox.ValidSnapshotID(id) {
		return unknown(id)
	}
	if err := s.step("delete", func() error { return s.discard(id) }); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return durable.SyncDir(s.dir)
}

func (s *Store) discard(id string) error {
	at := filepath.Join(s.dir, prefixTrash+id+"-"+rand.Text())
	err := os.Rename(filepath.Join(s.dir, id), at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		s.deletions.Go(func() { s.empty(at) })
	}
	return err
}

func (s *Store) empty(dir string) {
	if err := s.opts.Remove(dir); err != nil {
		s.opts.Log.Error("delete what is left of a snapshot", "dir", dir, "err", err)
	}
}

// Layers returns the directories of a snapshot's layers and of those below it,
// the lowest first. In each there is a directory for each overlay of an instance that
// was written to. It fails with NotFound where one of them is not there.
func (s *Store) Layers(ctx context.Context, id string) ([]string, error) {
	var dirs []string
	for id != "" {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if len(dirs) >= sandbox.MaxSnapshotChain {
			return nil, sandbox.Errorf(sandbox.Exhausted, "snapshot %s: more than %d lie over one another", id, sandbox.MaxSnapshotChain)
		}
		rec, err := s.read(id)
		if err != nil {
			return nil, err
		}
		dirs = append([]string{filepath.Join(s.dir, id, dirLayers)}, dirs...)
		id = rec.Parent
	}
	return dirs, nil
}

func unknown(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "snapshot %q: not found", id).WithHint("carboy snapshot ls")
}

// maxRecord bounds what is read of a record.
const maxRecord = 1 << 20

func (s *Store) read(id string) (rec sandbox.Snapshot, err error) {
	if !sandbox.ValidSnapshotID(id) {
		return rec, unknown(id)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, id, fileRecord), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, unknown(id)
	}
	if err != nil {
		return rec, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return rec, err
	}
	return parse(id, raw)
}

// parse reads what writeRecord wrote, and nothing else.
func parse(id string, raw []byte) (rec sandbox.Snapshot, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("read the record of snapshot %s: %w", id, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return sandbox.Snapshot{}, fmt.Errorf("read the record of snapshot %s: more follows it", id)
	}
	if rec.ID != id || rec.Owner == "" || rec.Image == "" || rec.Parent != "" && !sandbox.ValidSnapshotID(rec.Parent) {
		return sandbox.Snapshot{}, fmt.Errorf("read the record of snapshot %s: it is another's, or not whole", id)
	}
	return rec, nil
}

// writeRecord puts a record into a snapshot's directory in place of the one
// that is there, durably.
func writeRecord(dir string, rec sandbox.Snapshot) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(dir, fileRecord), raw, durable.Options{})
}
