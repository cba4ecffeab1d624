package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Info is what may be known of a secret: all but its value.
type Info struct {
	Name      string
	Kind      Kind
	File      string        // of KindFile
	Command   []string      // of KindCommand
	TTL       time.Duration // of KindCommand
	Key       bool          // a private key
	CreatedAt time.Time
	RotatedAt time.Time
	// LastUsed is when a value was last asked for, to the minute; zero: never.
	LastUsed time.Time
	// Notes say, after Put and Rotate, what the owner should know: that an end
	// of line was left out, or that others can read the file.
	Notes []string
	// Damaged: the record can't be read, and only the name is known.
	Damaged bool
}

// Put keeps a secret of owner, "uid:N" or "key:ID", in the place of one that
// has the name. A file is read, and a command run, once before.
func (s *Store) Put(ctx context.Context, owner, name string, src Source) (Info, error) {
	o, err := parseOwner(owner)
	if err != nil {
		return Info{}, err
	}
	return s.put(ctx, o, o.dir, name, src, Change{Owner: owner, Name: name}, false)
}

// PutFor keeps a secret for one sandbox, which goes before the owner's own of
// that name. It is gone with RemoveFor.
func (s *Store) PutFor(ctx context.Context, owner, sandboxID, name string, src Source) (Info, error) {
	o, err := parseOwner(owner)
	if err != nil {
		return Info{}, err
	}
	place, err := sandboxDir(sandboxID)
	if err != nil {
		return Info{}, err
	}
	return s.put(ctx, o, place, name, src, Change{Sandbox: sandboxID, Name: name}, false)
}

// Rotate gives a secret of owner a new value: src, or where that is nil, what
// its file or command has now. Sandboxes that use it get the new value with
// their next request.
func (s *Store) Rotate(ctx context.Context, owner, name string, src *Source) (Info, error) {
	o, err := parseOwner(owner)
	if err != nil {
		return Info{}, err
	}
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	old, err := s.read(o.dir, name)
	if errors.Is(err, errNoRecord) {
		return Info{}, missing(name)
	}
	switch {
	case src != nil:
	case err != nil:
		return Info{}, err
	case len(old.Value) > 0:
		old.wipe()
		return Info{}, sandbox.Errorf(sandbox.Invalid, "secret %s has a value of its own, and needs a new one", name).
			WithHint("give the value, a file or a command")
	default:
		again := old.source()
		src = &again
	}
	if old != nil {
		src.Key = old.Key
		old.wipe()
	}
	return s.put(ctx, o, o.dir, name, *src, Change{Owner: owner, Name: name}, true)
}

// put keeps src at its place; rotating, only if something is there.
func (s *Store) put(ctx context.Context, o owner, place, name string, src Source, c Change, rotating bool) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	if err := named(name, src.check(o)); err != nil {
		return Info{}, err
	}
	got, notes, err := s.obtain(ctx, o, name, src)
	if err != nil {
		return Info{}, err
	}
	defer got.Wipe()
	now := s.o.Now().UTC()
	r := &record{
		Version: recordVersion, Place: place, Name: name, Owner: o.text,
		File: src.File, Command: src.Command, TTL: int64(src.TTL), Key: src.Key, Created: now, Rotated: now,
	}
	if src.kind() == KindValue {
		r.Value = []byte(got.Reveal())
		defer r.wipe()
	}
	if err := s.write(r, rotating, got); err != nil {
		return Info{}, err
	}
	s.o.Changed(c)
	info := r.info()
	info.Notes = notes
	return info, nil
}

// write saves r, with the time at which its name was first put, and has v used
// for as long as its command allows.
func (s *Store) write(r *record, rotating bool, v Value) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.loadIfKey(r.Place, r.Name)
	switch {
	case err == nil:
		r.Created = old.Created
		old.wipe()
	case !errors.Is(err, errNoRecord): // damaged: replaced
	case rotating:
		return missing(r.Name)
	default:
		if err := s.room(r.Place, r.Owner); err != nil {
			return err
		}
	}
	if err := s.needKey(); err != nil {
		return err
	}
	if err := s.save(r); err != nil {
		return err
	}
	key := path.Join(r.Place, r.Name)
	at := s.minted.drop(key)
	if r.TTL > 0 {
		s.minted.keep(key, at, NewValue([]byte(v.Reveal())), r.Rotated.Add(time.Duration(r.TTL)))
	}
	return nil
}

func (s *Store) loadIfKey(place, name string) (*record, error) {
	if s.key == nil {
		return nil, errNoRecord
	}
	return s.load(place, name)
}

// room refuses one more secret where there are too many.
func (s *Store) room(place, owner string) error {
	names, err := s.names(place, false)
	if err != nil {
		return err
	}
	limit := maxSecrets
	if strings.HasPrefix(place, "sandboxes/") {
		limit = MaxSandboxSecrets
	} else if most := s.o.Most(owner); most > 0 {
		limit = min(limit, most)
	}
	if len(names) >= limit {
		return sandbox.Errorf(sandbox.Exhausted, "there are %d secrets, and no more are kept", limit).WithHint("carboy secret rm NAME")
	}
	return nil
}

// read is load, by a reader.
func (s *Store) read(place, name string) (*record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.loadIfKey(place, name)
}

// List returns the secrets of owner, by name. One that is damaged is in it.
func (s *Store) List(_ context.Context, owner string) ([]Info, error) {
	o, err := parseOwner(owner)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	names, err := s.names(o.dir, false)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(names))
	for _, name := range names {
		r, err := s.loadIfKey(o.dir, name)
		if err != nil {
			infos = append(infos, Info{Name: name, Damaged: true})
			continue
		}
		info := r.info()
		if info.LastUsed = s.lastUsed(r); !info.LastUsed.IsZero() && info.LastUsed.Before(info.CreatedAt) { // in the same minute
			info.LastUsed = info.CreatedAt
		}
		r.wipe()
		infos = append(infos, info)
	}
	return infos, nil
}

func (r *record) info() Info {
	src := Source{File: r.File, Command: r.Command}
	return Info{
		Name: r.Name, Kind: src.kind(), File: r.File, Command: slices.Clone(r.Command), TTL: time.Duration(r.TTL), Key: r.Key,
		CreatedAt: r.Created, RotatedAt: r.Rotated,
	}
}

// Remove removes a secret of owner. While sandboxes use it that is a Conflict,
// unless force is set: their requests that need it are refused from then on.
func (s *Store) Remove(_ context.Context, owner, name string, force bool) error {
	o, err := parseOwner(owner)
	if err != nil {
		return err
	}
	if err := CheckName(name); err != nil {
		return err
	}
	if s.o.InUse != nil && !force {
		if by := s.o.InUse(owner, name); len(by) > 0 {
			return sandbox.Errorf(sandbox.Conflict, "secret %s is used by sandbox %s", name, strings.Join(by, ", ")).
				WithHint("carboy secret rm --force %s", name)
		}
	}
	if err := s.remove(o.dir, name); err != nil {
		return err
	}
	_ = s.minted.drop(path.Join(o.dir, name))
	s.o.Changed(Change{Owner: owner, Name: name, Removed: true})
	return nil
}

func (s *Store) remove(place, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.root.Remove(path.Join(place, name+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return missing(name).WithHint("carboy secret ls") // to add it would not help
	}
	if err != nil {
		return fmt.Errorf("remove secret %s: %w", name, err)
	}
	s.fault("removed")
	return s.syncBelow(place)
}

// RemoveFor removes what was kept for one sandbox. That there is nothing is no
// error.
func (s *Store) RemoveFor(_ context.Context, sandboxID string) error {
	place, err := sandboxDir(sandboxID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.names(place, false)
	if err != nil {
		return err
	}
	if err := s.root.RemoveAll(place); err != nil {
		return fmt.Errorf("remove a sandbox's secrets: %w", err)
	}
	for _, name := range names {
		_ = s.minted.drop(path.Join(place, name))
	}
	return nil
}

// Sandboxes returns the IDs of the sandboxes that something is kept for, so
// that what belongs to none any more can be removed.
func (s *Store) Sandboxes() (ids []string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	entries, err := s.entries("sandboxes")
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), "id-"); ok && validID(id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func missing(names ...string) *sandbox.Error {
	what := "secret " + names[0] + " is"
	if len(names) > 1 {
		what = "secrets " + strings.Join(names, ", ") + " are"
	}
	return sandbox.Errorf(sandbox.NotFound, "%s not there", what).WithHint("carboy secret add %s", names[0])
}

// Check fails with NotFound, naming the missing, unless owner has all of names.
func (s *Store) Check(_ context.Context, owner string, names []string) error {
	o, err := parseOwner(owner)
	if err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var gone []string
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return err
		}
		if _, err := s.root.Lstat(path.Join(o.dir, name+suffix)); err != nil {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		return missing(gone...)
	}
	return nil
}

// named says of which secret an error is.
func named(name string, err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return sandbox.Errorf(e.Kind, "secret %s: %w", name, err).WithHint("%s", e.Hint)
	}
	return err
}
