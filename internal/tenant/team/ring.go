package team

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

const (
	// maxKeys is how many keys of one owner are made.
	maxKeys = 1000
	// maxKeyName is how long the name of one is, in bytes.
	maxKeyName = 256
	// usedEvery is how exactly the last use of a key is kept.
	usedEvery = time.Minute
)

// Key is a key that was made at run time.
type Key struct {
	ID    string `json:"id"` // a UUID
	Owner string `json:"owner"`
	Name  string `json:"name"`
	Hash  string `json:"hash"` // key.Hash of it
	Mask  Mask   `json:"mask"`

	Scopes         []key.Scope `json:"scopes"` // never none
	Paths          []string    `json:"paths,omitempty"`
	HostImage      bool        `json:"host_image,omitempty"`
	PrivateNetwork bool        `json:"private_network,omitempty"`
	Isolation      string      `json:"isolation,omitempty"`

	MadeBy    string    `json:"made_by,omitempty"` // MakerID; "": an administrator
	CreatedAt time.Time `json:"created_at"`
	LastUsed  time.Time `json:"-"` // to the minute; zero: never
}

// Mask is what of a key may be shown.
type Mask struct {
	Prefix string `json:"prefix"`
	Length int    `json:"length"` // of what follows the prefix
	First  string `json:"first"`
	Last   string `json:"last"`
}

// Grant is what a key allows.
type Grant struct {
	Scopes         []key.Scope // none: those of key.Usual
	Paths          []string
	HostImage      bool
	PrivateNetwork bool
	Isolation      string // the weakest wall; "": the team's
}

// Keys keeps keys. *store.SQLite is one.
type Keys interface {
	Keys(ctx context.Context) ([]Key, error)
	// PutKey keeps a new key, or another name of one.
	PutKey(ctx context.Context, k Key) error
	// DeleteKey deletes one; that there is none is no error.
	DeleteKey(ctx context.Context, id string) error
	// UseKey writes down when a key was last used. It need not be durable.
	UseKey(ctx context.Context, id string, at time.Time) error
}

// Ring is all the keys there are: those of the key file, which change with the
// file alone, and those that were made. It is safe for use by several
// goroutines.
type Ring struct {
	file *key.Set // nil: there is none
	keys Keys
	rand io.Reader
	now  func() time.Time
	log  *slog.Logger

	making sync.Mutex // one change at a time

	mu   sync.Mutex
	made map[string]*held             // by ID
	sums map[[sha256.Size]byte]string // to IDs
}

// held is a key that was made, while there is one.
type held struct {
	Key
	key   *key.Key
	ctx   context.Context // ends with the key
	end   context.CancelFunc
	wrote time.Time // when the last use was written down
}

// RingOptions are what a Ring works with. Keys and Rand are required.
type RingOptions struct {
	File *key.Set // nil: none
	Keys Keys
	Rand io.Reader
	Now  func() time.Time // default: time.Now
	Log  *slog.Logger     // default: none
}

// OpenRing reads what keys were made.
func OpenRing(ctx context.Context, o RingOptions) (*Ring, error) {
	r := &Ring{
		file: o.File, keys: o.Keys, rand: o.Rand, now: o.Now, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		made: map[string]*held{}, sums: map[[sha256.Size]byte]string{},
	}
	if r.now == nil {
		r.now = time.Now
	}
	if o.File != nil {
		for _, k := range o.File.All() {
			if k.Isolation != "" && !sandbox.ValidWall(k.Isolation) {
				return nil, sandbox.Errorf(sandbox.Invalid, "key %s: isolation %.80q: there is no such wall", k.ID, k.Isolation)
			}
		}
	}
	list, err := o.Keys.Keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range list {
		if err := r.hold(k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// hold makes k one that opens.
func (r *Ring) hold(k Key) error {
	raw, err := hex.DecodeString(k.Hash)
	if err != nil || len(raw) != sha256.Size || len(k.Scopes) == 0 || !strings.HasPrefix(k.Owner, "key:") {
		return sandbox.Errorf(sandbox.Internal, "the record of key %s is damaged", k.ID)
	}
	h := &held{Key: k, key: &key.Key{
		ID: k.ID, Hash: k.Hash, Scopes: k.Scopes, Owner: k.Owner, Paths: k.Paths,
		HostImage: k.HostImage, PrivateNetwork: k.PrivateNetwork, Isolation: k.Isolation,
	}, wrote: k.LastUsed}
	h.ctx, h.end = context.WithCancel(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[k.ID] = h
	r.sums[[sha256.Size]byte(raw)] = k.ID
	return nil
}

// Find returns the key that secret is, and a context that ends when it is
// deleted, for what goes on for long.
func (r *Ring) Find(ctx context.Context, secret string) (*key.Key, context.Context, bool) {
	if !key.Looks(secret) {
		return nil, nil, false
	}
	if r.file != nil {
		if k, ok := r.file.Find(secret); ok {
			return k, context.Background(), true
		}
	}
	// What is looked up is a hash: how long that takes tells nothing of a key.
	sum := sha256.Sum256([]byte(secret))
	now := r.now().UTC()
	r.mu.Lock()
	h := r.made[r.sums[sum]]
	if h == nil {
		r.mu.Unlock()
		return nil, nil, false
	}
	h.LastUsed = now.Truncate(usedEvery)
	if h.LastUsed.Before(h.CreatedAt) { // in the same minute
		h.LastUsed = h.CreatedAt
	}
	write := now.Sub(h.wrote) >= usedEvery
	if write {
		h.wrote = now
	}
	r.mu.Unlock()
	if write {
		if err := r.keys.UseKey(context.WithoutCancel(ctx), h.ID, now); err != nil {
			r.log.Warn("write the last use of a key", "id", h.ID, "error", err)
		}
	}
	return h.key, h.ctx, true
}

// Owners returns whom the keys belong to, sorted.
func (r *Ring) Owners() []string {
	var out []string
	if r.file != nil {
		for _, k := range r.file.All() {
			out = append(out, k.Owner)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.made {
		out = append(out, h.Owner)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Make makes a key of owner and returns it with its secret, which is nowhere
// else. What it grants must be within the maker's; madeBy is the maker's
// MakerID.
func (r *Ring) Make(ctx context.Context, owner, name, madeBy string, grant Grant) (Key, string, error) {
	if err := checkKeyName(name); err != nil {
		return Key{}, "", err
	}
	if !strings.HasPrefix(owner, "key:") {
		return Key{}, "", sandbox.Errorf(sandbox.Denied, "keys belong to teams, and %s is a user of this machine", owner).
			WithHint("carboy key add --team NAME")
	}
	if len(grant.Scopes) == 0 {
		grant.Scopes = key.Usual()
	}
	for _, s := range grant.Scopes {
		if !s.Known() {
			return Key{}, "", sandbox.Errorf(sandbox.Invalid, "scope %.40q: there is no such scope", string(s)).
				WithHint("read, manage, exec, approve, keys or admin")
		}
	}
	r.making.Lock()
	defer r.making.Unlock()
	if n := len(r.List(owner)); n >= maxKeys {
		return Key{}, "", sandbox.Errorf(sandbox.Exhausted, "there are %d keys of this team, and no more are made", n).WithHint("delete one")
	}
	secret, hash, err := key.New(r.rand)
	if err != nil {
		return Key{}, "", err
	}
	id, err := NewID(r.rand)
	if err != nil {
		return Key{}, "", err
	}
	digits := strings.TrimPrefix(secret, key.PrefixE2B)
	k := Key{
		ID: id, Owner: owner, Name: name, Hash: hash,
		Mask:   Mask{Prefix: key.PrefixE2B, Length: len(digits), First: digits[:2], Last: digits[len(digits)-4:]},
		Scopes: grant.Scopes, Paths: grant.Paths, HostImage: grant.HostImage, PrivateNetwork: grant.PrivateNetwork, Isolation: grant.Isolation,
		MadeBy: madeBy, CreatedAt: r.now().UTC(),
	}
	if err := r.keys.PutKey(ctx, k); err != nil {
		return Key{}, "", err
	}
	return k, secret, r.hold(k)
}

func checkKeyName(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > maxKeyName || strings.ContainsFunc(name, unicode.IsControl) {
		return sandbox.Errorf(sandbox.Invalid, "name: 1 to %d bytes, without control characters", maxKeyName)
	}
	return nil
}

// List returns the keys of owner that were made, oldest first; with "", of all.
func (r *Ring) List(owner string) []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Key{}
	for _, h := range r.made {
		if owner == "" || h.Owner == owner {
			out = append(out, h.Key)
		}
	}
	slices.SortFunc(out, func(a, b Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func (r *Ring) find(owner, id string) (Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.made[id]; h != nil && (owner == "" || h.Owner == owner) {
		return h.Key, nil
	}
	return Key{}, sandbox.Errorf(sandbox.NotFound, "key %.80q: not found", id)
}

// Hash returns the hash of a key that was made and is still there.
func (r *Ring) Hash(id string) (hash string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.made[id]
	if h == nil {
		return "", false
	}
	return h.Hash, true
}

// Rename gives a key of owner another name; with "", of anybody.
func (r *Ring) Rename(ctx context.Context, owner, id, name string) (Key, error) {
	if err := checkKeyName(name); err != nil {
		return Key{}, err
	}
	r.making.Lock()
	defer r.making.Unlock()
	k, err := r.find(owner, id)
	if err != nil {
		return Key{}, err
	}
	k.Name = name
	if err := r.keys.PutKey(ctx, k); err != nil {
		return Key{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[id].Name = name
	return k, nil
}

// Delete deletes a key of owner; with "", of anybody. When it returns the key
// opens nothing, and what it had opened is being ended.
func (r *Ring) Delete(ctx context.Context, owner, id string) error {
	r.making.Lock()
	defer r.making.Unlock()
	k, err := r.find(owner, id)
	if err != nil {
		return err
	}
	if err := r.keys.DeleteKey(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[id].end()
	delete(r.made, id)
	for sum, of := range r.sums {
		if of == k.ID {
			delete(r.sums, sum)
		}
	}
	return nil
}

// Within returns what a key may grant that is made by somebody with grant:
// the scopes that are asked for, and with none those of key.Usual that the
// maker has. What the maker has not is Denied.
func (g Grant) Within(asked []key.Scope) (Grant, error) {
	if len(g.Scopes) == 0 {
		g.Scopes = key.Usual()
	}
	var out []key.Scope
	for _, s := range asked {
		switch {
		case !s.Known():
			return Grant{}, sandbox.Errorf(sandbox.Invalid, "scope %.40q: there is no such scope", string(s)).
				WithHint("read, manage, exec, approve, keys or admin")
		case !slices.Contains(g.Scopes, s):
			return Grant{}, sandbox.Errorf(sandbox.Denied, "scope %s: who makes the key has not got it", s)
		case !slices.Contains(out, s):
			out = append(out, s)
		}
	}
	if len(asked) == 0 {
		for _, s := range key.Usual() {
			if slices.Contains(g.Scopes, s) {
				out = append(out, s)
			}
		}
	}
	if len(out) == 0 {
		return Grant{}, sandbox.Errorf(sandbox.Denied, "who makes the key can do nothing that it could allow").
			WithHint("name the scopes, or use a key that has read, manage or exec")
	}
	g.Scopes = out
	return g, nil
}
