// Package template keeps what sandboxes are made from: images and snapshots
// with a name, and how they were built. It builds them inside sandboxes, never
// on the host: each step that writes anything runs in a sandbox of its own that
// starts from the step before, and is kept as a snapshot for the next build.
//
// Sandboxes and snapshots of builds belong to an owner of their own, which no
// caller is. Names, tags, files and everything else belong to the owner who made
// them; of others' templates a caller sees those that are public, and nothing
// says whether there are more.
//
// Steps, files and output are hostile. Archives are bounded and read here only
// to say where their members go; what a build prints is bounded and escaped;
// commands run behind a wall and, where nothing else was set, without a
// network. The package speaks no protocol: guests are reached by a port.
package template

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Defaults of Options.
const (
	DefaultTime     = time.Hour
	defaultPerOwner = 2       // builds of one owner at the same time
	defaultAtOnce   = 4       // builds of all
	defaultUpload   = 2 << 30 // bytes of one archive
	defaultFiles    = 16 << 30
	defaultContents = 8 << 30 // bytes that one archive may hold
	// DefaultCacheSize is of what the steps of one owner led to, in bytes.
	DefaultCacheSize = 64 << 30

	maxQueued    = 20  // builds of one owner that wait
	maxTemplates = 500 // of one owner
	maxBuilds    = 200 // of one template that no tag leads to; the oldest go
	maxComing    = 4   // archives of one owner that come at the same time; more wait
	maxCached    = 500 // steps of one owner; the ones used longest ago go
)

// Options are what a Service works with. Store, Manager, Guest and Dir are
// required.
type Options struct {
	Store   Store
	Manager Manager
	Images  Images // nil: only the machine's own programs and other templates
	// Guest reaches a sandbox's agent, by a connection that dial makes.
	Guest func(dial func(context.Context) (net.Conn, error)) Guest
	// Room refuses to begin a build where the disk has too little room for any; what is a word
	// for it. Default: there is always some.
	Room func(owner, what string) error
	Dir  string // for files that clients send and for logs; is made
	Log  *slog.Logger
	Now  func() time.Time

	// Host identifies the machine's own programs, and changes where an upgrade
	// changes those; nil: they are always the same.
	Host func(ctx context.Context) (string, error)

	// Network and Policy are what a build's commands may reach, as a Spec has
	// them.
	Network string
	Policy  *policy.Policy

	// Sudo is a Spec's, of builds.
	Sudo bool

	Time             time.Duration // that one build may take
	PerOwner, AtOnce int           // builds at the same time
	// Live says whether the source of a link does, as FileLink has it; nil: all do.
	Live func(source string) bool
	// Bound says how many templates an owner may have, and how many builds at
	// the same time, where those are other than usual; 0: they are not.
	Bound       func(owner string) (templates, builds int)
	Upload      int64  // bytes of one archive, as it comes
	Contents    int64  // bytes and, divided by 1024, members of one archive
	Files       int64  // bytes of archives of one owner
	CacheSize   int64  // bytes of what one owner's steps led to, kept for later builds
	EnvdVersion string // what is written down of a build
}

// Service has the templates of all owners. It keeps their records in memory,
// and changes none before it is in the Store.
type Service struct {
	o   Options
	m   Manager
	log *slog.Logger
	now func() time.Time

	archives *archives
	logs     logs
	slots    *slots

	ctx     context.Context // of all builds
	cancel  context.CancelCauseFunc
	working sync.WaitGroup

	mu        sync.Mutex
	templates map[string]*Template
	builds    map[string]*Record
	tags      map[[2]string]Tag // by template and name
	cache     map[string]Cached
	running   map[string]*running  // by build
	making    int                  // calls of Make
	builtins  map[string]builtin   // by name
	unused    map[string]time.Time // since when nothing leads to a snapshot
	opened    bool                 // what was left was read
}

// running is a build under way.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var errOpening = sandbox.Errorf(sandbox.Unavailable, "templates: the daemon is starting").WithHint("try again")

// New returns a Service. Call Open before anything else, once the Manager has
// adopted its sandboxes.
func New(o Options) (*Service, error) {
	if o.Store == nil || o.Manager == nil || o.Guest == nil || o.Dir == "" {
		return nil, errors.New("templates: a store, a manager, a guest and a directory are required")
	}
	if o.Room == nil {
		o.Room = func(string, string) error { return nil }
	}
	o.Time = cmp.Or(o.Time, DefaultTime)
	o.PerOwner = cmp.Or(o.PerOwner, defaultPerOwner)
	o.AtOnce = cmp.Or(o.AtOnce, defaultAtOnce)
	o.Upload = cmp.Or(o.Upload, defaultUpload)
	o.Contents = cmp.Or(o.Contents, defaultContents)
	o.Files = cmp.Or(o.Files, defaultFiles)
	o.CacheSize = cmp.Or(o.CacheSize, DefaultCacheSize)
	s := &Service{
		o: o, m: o.Manager, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), now: o.Now,
		templates: map[string]*Template{}, builds: map[string]*Record{}, tags: map[[2]string]Tag{},
		cache: map[string]Cached{}, running: map[string]*running{}, builtins: map[string]builtin{},
		unused: map[string]time.Time{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.archives = &archives{
		dir: filepath.Join(o.Dir, filesDir), now: s.now, most: o.Upload, ofOwner: o.Files,
		uploads: map[string]upload{}, coming: map[string]chan struct{}{},
	}
	s.logs = logs{dir: filepath.Join(o.Dir, logsDir), now: s.stamp}
	s.slots = &slots{
		all: make(chan struct{}, o.AtOnce), of: map[string]chan struct{}{},
		bound: func(owner string) int { _, builds := s.bound(owner); return builds },
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

// Busy reports whether any build is under way or waits.
func (s *Service) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)+s.making > 0
}

var errClosing = sandbox.Errorf(sandbox.Unavailable, "the daemon is shutting down")

// Close ends builds under way, as interrupted, and waits for them.
func (s *Service) Close() {
	s.cancel(errClosing)
	s.working.Wait()
}

// stamp is the time as records have it.
func (s *Service) stamp() time.Time { return s.now().UTC().Round(0) }

// newID returns a template's ID.
func newID() string {
	var b [13]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:20]
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// readyLocked fails for unauthenticated callers, and before Open.
func (s *Service) readyLocked(c sandbox.Caller) error {
	switch {
	case c.Owner == "":
		return sandbox.Errorf(sandbox.Denied, "unauthenticated")
	case !s.opened:
		return errOpening
	}
	return nil
}

func unknown(ref string) error {
	return sandbox.Errorf(sandbox.NotFound, "template %.80q: not found", ref).
		WithHint("carboy template ls, or use %s", Base)
}

// findLocked returns the template that ref names for c: its own, or with
// public also others' that are. The tag is ref's.
func (s *Service) findLocked(c sandbox.Caller, ref string, public bool) (*Template, string, error) {
	if err := s.readyLocked(c); err != nil {
		return nil, "", err
	}
	r, err := ParseRef(ref)
	if err != nil {
		return nil, "", err
	}
	tag := cmp.Or(r.Tag, defaultTag)
	may := func(t *Template) bool { return t.Owner == c.Owner || c.Admin && !public || public && t.Public }
	if t := s.templates[r.Name]; t != nil && r.Namespace == "" && may(t) {
		return t, tag, nil
	}
	var found *Template
	for _, t := range s.templates {
		if t.Name != r.Name || r.Namespace != "" && Namespace(t.Owner) != r.Namespace || r.Namespace == "" && t.Owner != c.Owner || !may(t) {
			continue
		}
		if found == nil || t.Owner == c.Owner || found.Owner != c.Owner && t.ID < found.ID {
			found = t
		}
	}
	if found == nil {
		return nil, "", unknown(ref)
	}
	return found, tag, nil
}
