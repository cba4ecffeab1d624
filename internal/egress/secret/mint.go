package secret

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Minted is a value that may be used now.
type Minted struct {
	Value Value
	// Expires is until when it may be used again without asking; zero: until
	// Options.Changed tells of it. A value that is read or minted at each use
	// has expired when it is returned, and is for the one use.
	Expires time.Time
	// Key: it is a private key.
	Key bool
}

// Value returns the value of a secret: the sandbox's own, or the owner's. It
// fails with NotFound where there is none, with Unavailable where its file
// or command fails, and with Invalid for a private key: none goes into a request.
func (s *Store) Value(ctx context.Context, owner, sandboxID, name string) (Minted, error) {
	m, err := s.ForRemote(ctx, owner, sandboxID, name)
	if err == nil && m.Key {
		m.Value.Wipe()
		return Minted{}, sandbox.Errorf(sandbox.Invalid, "secret %s is a private key, which is for git's remotes alone", name)
	}
	return m, err
}

// ForRemote is Value for a remote of git's, which may be known by a private key.
func (s *Store) ForRemote(ctx context.Context, owner, sandboxID, name string) (Minted, error) {
	return s.find(ctx, owner, sandboxID, name, s.valueAt)
}

// find has at look for the record of a name: the sandbox's own, or the owner's.
func (s *Store) find(ctx context.Context, of, sandboxID, name string, at func(ctx context.Context, o owner, place, name string) (Minted, error)) (Minted, error) {
	o, err := parseOwner(of)
	if err != nil {
		return Minted{}, err
	}
	if err := CheckName(name); err != nil {
		return Minted{}, err
	}
	places := []string{o.dir}
	if sandboxID != "" {
		place, err := sandboxDir(sandboxID)
		if err != nil {
			return Minted{}, err
		}
		places = []string{place, o.dir}
	}
	for _, place := range places {
		m, err := at(ctx, o, place, name)
		if !errors.Is(err, errNoRecord) {
			return m, err
		}
	}
	return Minted{}, missing(name)
}

// valueAt returns the value of the record at place, for o. It fails with
// errNoRecord where there is none.
func (s *Store) valueAt(ctx context.Context, o owner, place, name string) (Minted, error) {
	key := path.Join(place, name)
	began := s.minted.now()
	r, err := s.read(place, name)
	if err != nil {
		return Minted{}, err
	}
	defer r.wipe()
	if r.Owner != o.text {
		return Minted{}, sandbox.Errorf(sandbox.Internal, "secret %s is not %s's", name, o.text)
	}
	s.use(r)
	src := r.source()
	switch src.kind() {
	case KindValue:
		if src.Value.Empty() {
			return Minted{}, unreadable(name, errors.New("a record without a source"))
		}
		return Minted{Value: src.Value, Key: r.Key}, nil
	case KindFile:
		v, _, err := s.obtain(ctx, o, name, src)
		return Minted{v, s.o.Now(), r.Key}, outside(err)
	}
	if src.TTL == 0 {
		v, _, err := s.obtain(ctx, o, name, src)
		return Minted{v, s.o.Now(), r.Key}, outside(err)
	}
	m, err := s.minted.get(ctx, key, s.o.Now, func() (Value, time.Time, error) {
		v, _, err := s.obtain(ctx, o, name, src)
		return v, s.o.Now().Add(src.TTL), outside(err)
	}, began)
	m.Key = r.Key
	return m, err
}

// outside makes an error of a source, which was good once, one that may pass.
func outside(err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Invalid {
		return err
	}
	c := *e
	c.Kind = sandbox.Unavailable
	return &c
}

// lastUsed tells when a record was last used: its file's time of change, which
// use sets, unless that is the time of its being written.
func (s *Store) lastUsed(r *record) time.Time {
	fi, err := s.root.Lstat(path.Join(r.Place, r.Name+suffix))
	if err != nil || fi.ModTime().Nanosecond() != 0 || fi.ModTime().Second() != 0 {
		return time.Time{}
	}
	return fi.ModTime().UTC()
}

// use notes the time, to the minute. Full minutes tell a time that was set
// from that of a write.
func (s *Store) use(r *record) {
	now := s.o.Now().Truncate(time.Minute)
	if last := s.lastUsed(r); !last.Equal(now) {
		_ = s.root.Chtimes(path.Join(r.Place, r.Name+suffix), now, now)
	}
}

// mints are the values that commands printed and that are still good.
type mints struct {
	mu    sync.Mutex
	byKey map[string]*mint
	// changes counts the secrets that were changed. What began to be minted
	// before the last of them is not kept: it may be of a source that is gone.
	changes int
}

type mint struct {
	turn    sync.Mutex // held while minting
	value   Value
	expires time.Time
}

// now returns how many changes there were.
func (m *mints) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// drop notes a change of key, whose value is forgotten, and returns now.
func (m *mints) drop(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byKey[key]; e != nil {
		e.value.Wipe()
		delete(m.byKey, key)
	}
	m.changes++
	return m.changes
}

// at returns the entry of key. The lock is held.
func (m *mints) at(key string) *mint {
	e := m.byKey[key]
	if e == nil {
		e = &mint{}
		m.byKey[key] = e
	}
	return e
}

// keep keeps a value whose minting began then, unless there was a change.
func (m *mints) keep(key string, began int, v Value, expires time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != began {
		v.Wipe()
		return
	}
	e := m.at(key)
	e.value.Wipe()
	e.value, e.expires = v, expires
}

func (m *mints) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.byKey {
		e.value.Wipe()
	}
	clear(m.byKey)
}

// kept returns a copy of the value that is kept for key, and key's entry.
func (m *mints) kept(key string, now time.Time) (Minted, *mint, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.at(key)
	if e.value.Empty() || !now.Before(e.expires) {
		return Minted{}, e, false
	}
	return Minted{Value: NewValue([]byte(e.value.Reveal())), Expires: e.expires}, e, true
}

// get returns the value that is kept for key, or one that mint makes. Of those
// who ask at once one mints, and the others wait.
func (m *mints) get(ctx context.Context, key string, now func() time.Time, mint func() (Value, time.Time, error), began int) (Minted, error) {
	got, e, ok := m.kept(key, now())
	if ok {
		return got, nil
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	if got, _, ok := m.kept(key, now()); ok {
		return got, nil
	}
	if ctx.Err() != nil {
		return Minted{}, context.Cause(ctx)
	}
	v, expires, err := mint()
	if err != nil {
		return Minted{}, err
	}
	m.keep(key, began, NewValue([]byte(v.Reveal())), expires)
	return Minted{Value: v, Expires: expires}, nil
}
