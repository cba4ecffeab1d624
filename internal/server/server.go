// Package server is Carboy's API over HTTP: its own below /v1/, E2B's core
// beside it, and the way into each sandbox's guest.
//
// It decides who asks, and what they may name; everything else is the
// domain's. It refuses what a browser's page could send, Hosts that it does
// not know, callers over TCP without a key, and every path of a guest that is
// not listed here. Others' sandboxes do not exist for a caller.
package server

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/ingress"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/template"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10

	// holdBeat is how often a stream without news says that it lives.
	holdBeat = 5 * time.Second
	// bodyTime is how long the body of a request to the API may take, archives
	// and what is for guests apart.
	bodyTime = time.Minute
	// bodyRest is how long what is left of a body may take once it was answered:
	// until then its connection is kept.
	bodyRest = 5 * time.Second
	// eventPoll is how often a followed log is looked at.
	eventPoll = 250 * time.Millisecond
)

// Manager is what the server asks of the domain. A sandbox is named by its ID
// or its name. *sandbox.Manager is one, and documents each method.
type Manager interface {
	ingress.Manager
	sandboxes
	networks
}

// sandboxes is what the server asks of the domain about sandboxes and what is
// left of them.
type sandboxes interface {
	Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error)
	Check(ctx context.Context, spec sandbox.Spec) error
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Stop(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	SetUp(ctx context.Context, c sandbox.Caller, ref string, f sandbox.SetUp) (*sandbox.Sandbox, error)
	Pause(ctx context.Context, c sandbox.Caller, ref string, memory bool) (sb *sandbox.Sandbox, kept bool, err error)
	Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error
	Set(ctx context.Context, c sandbox.Caller, ref string, ch sandbox.Change) (*sandbox.Sandbox, []sandbox.Setting, error)
	LockWorkspace(ctx context.Context, c sandbox.Caller, ref string, l sandbox.LockChange) (*sandbox.Sandbox, []sandbox.Writer, error)
	Processes(ctx context.Context, c sandbox.Caller, ref string) (guest.Processes, error)
	Usage(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, sandbox.Usage, error)
	Held(ctx context.Context, c sandbox.Caller, ref string) (int64, error)
	NetUse(ctx context.Context, c sandbox.Caller, ref string) (sandbox.NetUse, error)
	SetTTL(ctx context.Context, c sandbox.Caller, ref string, ttl time.Duration) (*sandbox.Sandbox, error)
	Hold(ctx context.Context, c sandbox.Caller, ref string) (release func(), err error)
	Finish(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Result, error)
	Events(ctx context.Context, c sandbox.Caller, ref string) ([]sandbox.Event, error)
	Record(ctx context.Context, c sandbox.Caller, ref string, ev sandbox.Event) error
	Published(id string) []sandbox.PortState
	Changes(ctx context.Context, c sandbox.Caller, ref string, opts sandbox.ChangesOptions, w io.Writer) error
	ListDisk(ctx context.Context, c sandbox.Caller, ref, path string, recursive bool, w io.Writer) error
	ReadDisk(ctx context.Context, c sandbox.Caller, ref, path string, maxBytes int64, w io.Writer) error
	ExportDisk(ctx context.Context, c sandbox.Caller, ref string, w io.Writer) error
	ScrubDisk(ctx context.Context, c sandbox.Caller, ref string, progress func(sandbox.DiskStep)) error
	Snapshot(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, c sandbox.Caller, id string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, c sandbox.Caller) ([]sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, c sandbox.Caller, id string) error
}

var _ Manager = (*sandbox.Manager)(nil)

// Templates has what sandboxes are made from. *template.Service is one, and
// documents the method.
type Templates interface {
	Resolve(ctx context.Context, c sandbox.Caller, ref string) (template.Build, error)
}

// Dialect is another API than our own: it answers every path that is neither
// below /v1/ nor for a sandbox.
type Dialect interface {
	http.Handler
	// ServeLink answers a request that needs no key, since its path is a secret
	// that lets it in, and reports whether r was one.
	ServeLink(w http.ResponseWriter, r *http.Request) bool
	// Loggable is a path without such a secret.
	Loggable(path string) string
	// WriteError answers with err as the dialect has errors.
	WriteError(w http.ResponseWriter, status int, err error)
}

// Options are what a Server works with. Manager is required.
type Options struct {
	Manager Manager
	Images  Images  // nil: only the machine's own programs
	Secrets Secrets // nil: only those that come with a sandbox
	Volumes Volumes // nil: none
	Pods    Pods    // nil: none
	// Approvals has what sandboxes ask people; nil: they ask nothing.
	Approvals Approvals
	// Sessions keeps sandboxes for who names them by keys of their own; nil: none.
	Sessions Sessions
	// SessionsOff says why there are none, where someone wants it so.
	SessionsOff string
	// SessionMetrics is what was counted of them; nil: nothing was.
	SessionMetrics func() session.Metrics
	// Tenants are who may ask over TCP; the zero value: nobody.
	auth.Tenants
	// Templates has what sandboxes are made from; nil: there is only the base.
	Templates Templates
	// TemplateCache is what is kept for builds; nil: nothing is.
	TemplateCache TemplateCache
	Dialect       Dialect // beside /v1/; nil: none
	// Domain is under which sandboxes are reached as PORT-ID.Domain; "": not.
	Domain string
	// PublicTraffic is ingress.Options.PublicTraffic.
	PublicTraffic bool
	// Browsers is ingress.Options.Browsers.
	Browsers func(ctx context.Context) (port int, err error)
	// Sockets is where the socket of a sandbox is, for who asks on this machine; "" where
	// it has none; nil: no sandbox has one.
	Sockets func(id string) string
	// Skill has the skills that agents are given; nil: there are none.
	Skill SkillFunc
	// HasSkill reports that an owner has no skill of that name, as NotFound.
	HasSkill func(ctx context.Context, owner, name string) error
	// Hosts are further names by which the server is called over TCP.
	Hosts []string
	// MountDirs are the directories below which callers over the unix socket
	// may name mounts; "~" is the caller's home.
	MountDirs []string
	// Private are directories that no sandbox is ever given: the daemon's own.
	Private []string
	// Status answers GET /v1/status, Version GET /v1/version.
	Status  func(ctx context.Context) (api.Status, error)
	Version string
	// Shutdown is called once the daemon was asked to leave.
	Shutdown func()
	Log      *slog.Logger // default: none
}

// Server answers requests. It listens to nothing: the daemon hands it
// connections by way of Unix and TCP.
type Server struct {
	o       Options
	log     *slog.Logger
	ingress *ingress.Ingress
	dialect Dialect
	api     http.Handler // everything but ingress, for a request whose caller is known
	uid     uint32       // this process's
	active  atomic.Int64
	touched atomic.Int64 // unix nanoseconds of the last request's end
	leaving atomic.Bool
	heavy   heavy

	bodyTime, bodyRest time.Duration
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{o: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), dialect: o.Dialect, uid: uint32(os.Geteuid()), bodyTime: bodyTime, bodyRest: bodyRest}
	if s.dialect == nil {
		s.dialect = noDialect{}
	}
	s.touched.Store(time.Now().UnixNano())
	s.ingress = ingress.New(ingress.Options{
		Manager: o.Manager, Tenants: o.Tenants, Domain: o.Domain, PublicTraffic: o.PublicTraffic, Browsers: o.Browsers, Log: s.log,
	})
	mux := http.NewServeMux()
	s.routes(mux)
	s.api = mux
	return s
}

// Close ends the connections to guests that are idle, and what the server does
// of itself.
func (s *Server) Close() { s.ingress.Close() }

// Leave has further requests refused: nothing is begun of them, which their callers
// are told. Those under way go on.
func (s *Server) Leave() { s.leaving.Store(true) }

// staying refuses requests once the daemon leaves.
func (s *Server) staying(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() {
			w.Header().Set("Connection", "close")
			s.refuseKind(w, r, sandbox.ErrLeaving)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Idle returns for how long no request has been under way, 0 while one is.
func (s *Server) Idle(now time.Time) time.Duration {
	if s.active.Load() > 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, s.touched.Load())))
}

// Unix returns the server for connections of the daemon's unix socket.
// Requests end when ctx does.
func (s *Server) Unix(ctx context.Context) *http.Server {
	return s.httpServer(ctx, s.observe(s.guard(unixHost, noPages, s.staying(s.links(s.fromUnix(http.HandlerFunc(s.route)))))))
}

// TCP returns the server for connections over TCP.
func (s *Server) TCP(ctx context.Context) *http.Server {
	return s.httpServer(ctx, s.observe(s.guard(s.tcpHost, s.tcpPages, s.staying(s.links(s.fromTCP(http.HandlerFunc(s.route)))))))
}

// Browsers returns the server for connections of this machine's browsers, to the
// listener that Options.Browsers opens.
func (s *Server) Browsers(ctx context.Context) *http.Server {
	srv := s.httpServer(ctx, s.observe(http.HandlerFunc(s.ingress.ServeBrowser)))
	srv.ConnContext = ingress.WithBrowser
	return srv
}

func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true) // over TLS
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           &wire.Watch{Next: h, Log: s.log, Path: s.dialect.Loggable, Panicked: s.panicked},
		Protocols:         &p,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       auth.WithPeer,
	}
}

// panicked answers for a handler that could not.
func (s *Server) panicked(w http.ResponseWriter, r *http.Request) {
	s.refuseKind(w, r, sandbox.Errorf(sandbox.Internal, "internal error").WithHint(sandbox.LogHint))
}

// observe counts requests and writes the access log: who, what and how long,
// never a query or a header, which may hold names of files or secrets.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		r, owner := auth.WatchOwner(r)
		defer func() {
			if r.ContentLength != 0 { // the rest of it is read before the next request
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyRest))
			}
			s.touched.Store(time.Now().UnixNano())
			s.active.Add(-1)
			s.log.Debug("request", "method", r.Method, "path", s.dialect.Loggable(r.URL.Path), "caller", *owner,
				"status", cmp.Or(rec.status, http.StatusOK), "took", time.Since(start))
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 || r.status < 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
