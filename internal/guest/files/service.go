package files

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem/filesystemconnect"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

const (
	maxRequest     = 1 << 20 // bytes of one call's message
	streamsPerUser = 8       // archives at once, and so threads for them
)

// Options say where a Service works and for whom.
type Options struct {
	// MountNS is the mount namespace whose files are served; nil: the
	// current one. It must stay open until Close has returned.
	MountNS *os.File
	// Confine is what each thread in MountNS does before it acts for a user; nil:
	// nothing.
	Confine func() error
	// Lookup finds the user whom a request names. An error is answered as
	// "unauthenticated", unless it is ErrDenied. Required.
	Lookup func(name string) (account.Account, error)
	// Host finds users for the host itself, also those that no request may act
	// as; nil: the host has no business here.
	Host func(name string) (account.Account, error)
	// DefaultUser names the user of a request that names none; nil: "user".
	DefaultUser func() string
	// DefaultDir is where a user's relative paths start; nil or "": the home.
	DefaultDir func(account.Account) string
	// Provide makes what is new for a request's user where root alone could: see
	// provide.
	Provide bool
	// Log gets what no answer can say; nil: nowhere.
	Log *slog.Logger
}

// ErrDenied is of a user who is there, and as whom nobody may act.
var ErrDenied = errors.New("not allowed")

// Service serves files. It holds threads and watches; Close gives them back.
type Service struct {
	opts     Options
	log      *slog.Logger
	workers  *Workers // short work
	streams  *Workers // archives, which last as long as their client likes
	names    nameCache
	watches  *watchers
	uploads  turns
	notifier notifier
}

var _ filesystemconnect.FilesystemHandler = (*Service)(nil)

// New returns a Service that has touched nothing yet.
func New(o Options) *Service {
	if o.DefaultUser == nil {
		o.DefaultUser = func() string { return account.User }
	}
	if o.DefaultDir == nil {
		o.DefaultDir = func(account.Account) string { return "" }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		opts:    o,
		log:     o.Log,
		workers: NewWorkers(WorkerOptions{MountNS: o.MountNS, Confine: o.Confine}),
		streams: NewWorkers(WorkerOptions{MountNS: o.MountNS, Confine: o.Confine, PerUser: streamsPerUser}),
		watches: newWatchers(),
	}
}

// Register adds the service's routes to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.Handle(filesystemconnect.NewFilesystemHandler(s, connect.WithReadMaxBytes(maxRequest)))
	mux.HandleFunc("GET /files", s.download)
	mux.HandleFunc("POST /files", s.upload)
	mux.HandleFunc("POST /files/compose", s.compose)
	mux.HandleFunc("GET /carboy/archive", s.sendArchive)
	mux.HandleFunc("POST /carboy/archive", s.takeArchive)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		mux.HandleFunc(method+" /carboy/packages", s.packages)
	}
}

// Turn waits until no upload writes to a file, which the caller may do until it
// calls release.
func (s *Service) Turn(ctx context.Context, dev, ino uint64) (release func(), err error) {
	file := inode{dev, ino}
	if err := s.uploads.take(ctx, file, turnWait); err != nil {
		return nil, err
	}
	return func() { s.uploads.release(file) }, nil
}

// Close ends all watches and threads, and waits for them. Requests that are
// still under way end with an error; the caller stops the HTTP server first.
func (s *Service) Close() error {
	s.watches.close()
	return errors.Join(s.workers.Close(), s.streams.Close())
}

// who returns the user of a request: the one that it names, in the query or
// in the Authorization header, or the default.
func (s *Service) who(h http.Header, query string) (account.Account, error) {
	name := query
	if name == "" {
		n, ok, err := account.FromHeader(h)
		if err != nil {
			return account.Account{}, &fault{connect.CodeUnauthenticated, err}
		}
		name = n
		if !ok {
			name = s.opts.DefaultUser()
		}
	}
	if name == "" {
		return account.Account{}, faultf(connect.CodeUnauthenticated, "no user was named, and there is no default")
	}
	a, err := s.opts.Lookup(name)
	if errors.Is(err, ErrDenied) {
		return account.Account{}, &fault{connect.CodePermissionDenied, err}
	}
	if err != nil {
		return account.Account{}, &fault{connect.CodeUnauthenticated, err}
	}
	return a, nil
}

// resolve is Resolve for a.
func (s *Service) resolve(a account.Account, p string) (string, error) {
	q, err := Resolve(p, a.Home, s.opts.DefaultDir(a))
	if err != nil {
		return "", faultf(connect.CodeInvalidArgument, "path %.128q: %w", p, err)
	}
	return q, nil
}

// at runs fn on a worker, for the user whom h names and the path that p means
// to that user.
func (s *Service) at(ctx context.Context, h http.Header, p string, fn func(p string) error) error {
	a, err := s.who(h, "")
	if err != nil {
		return err
	}
	if p, err = s.resolve(a, p); err != nil {
		return err
	}
	return s.act(ctx, a, func() error { return fn(p) })
}

// act runs fn on a worker with a's rights, and says whose they were where
// they did not do: with envd, files may be read and written by any user.
func (s *Service) act(ctx context.Context, a account.Account, fn func() error) error {
	err := s.workers.Do(ctx, a, fn)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w to user %q; a request can name another user, such as root", err, a.Name)
	}
	return err
}

// nameCache keeps the names of users and groups until their files change.
type nameCache struct {
	mu    sync.Mutex
	seen  [2]fingerprint
	names account.Names
	valid bool
}

type fingerprint struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// load returns the names as they are now. It runs on a worker.
func (c *nameCache) load() account.Names {
	var now [2]fingerprint
	for i, p := range []string{"/etc/passwd", "/etc/group"} {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil {
			now[i] = fingerprint{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.valid || c.seen != now {
		// What can't be read is shown as numbers.
		c.names, _ = account.LoadNames("/")
		c.seen, c.valid = now, true
	}
	return c.names
}
