// Package e2b speaks the core of E2B's REST API, so that E2B's SDKs work
// unchanged: sandboxes are created, listed, looked at, kept and removed by
// it. What happens inside them goes to envd, which the server forwards.
//
// An option that can't be honoured is refused, never ignored, and a path that
// is not built answers 501 by name. The template "base" is the default image.
// A sandbox that is paused is a stopped one: its files are kept, and its
// memory where the wall can; a notice says where not.
package e2b

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

const (
	// EnvdVersion is the version of envd whose features a guest has: what
	// E2B's SDKs go by.
	EnvdVersion = "0.6.13"

	clientID = "carboy"

	defaultTimeoutV1 = 15 * time.Second
	defaultTimeoutV2 = 300 * time.Second
)

// Manager is what this dialect asks of the domain.
type Manager interface {
	Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Pause(ctx context.Context, c sandbox.Caller, ref string, memory bool) (sb *sandbox.Sandbox, kept bool, err error)
	Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error
	SetTTL(ctx context.Context, c sandbox.Caller, ref string, ttl time.Duration) (*sandbox.Sandbox, error)
	SetOnExpiry(ctx context.Context, c sandbox.Caller, ref string, on sandbox.OnExpiry) (*sandbox.Sandbox, error)
	SetNetwork(ctx context.Context, c sandbox.Caller, ref string, ch sandbox.NetworkChange) (*sandbox.Sandbox, error)
	Like(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Spec, sandbox.SecretValues, error)
	Snapshot(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, c sandbox.Caller) ([]sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, c sandbox.Caller, id string) error
	Events(ctx context.Context, c sandbox.Caller, ref string) ([]sandbox.Event, error)
}

var _ Manager = (*sandbox.Manager)(nil)

// Caller is who asks, and what its key allows.
type Caller struct {
	sandbox.Caller
	Read, Manage, Exec bool
	Keys, Admin        bool
	HostImage          bool
	PrivateNetwork     bool // may open what is not public
	// Credential names what the caller was let in with: the ID of a key, or a
	// user of the machine.
	Credential string
	Source     string     // what ends the tokens that the caller asks for; "": nothing
	Presented  string     // the key itself, of a caller that asks for itself
	Grant      team.Grant // what keys may have that the caller makes
}

// callerOf is who sent r.
func callerOf(r *http.Request) Caller {
	p := auth.Of(r)
	return Caller{
		Caller: p.Caller, Read: p.Allows(key.Read), Manage: p.Allows(key.Manage),
		Exec: p.Allows(key.Exec), HostImage: p.HostImage(), PrivateNetwork: p.PrivateNetwork(),
		Keys: p.Allows(key.Keys), Admin: p.Allows(key.Admin),
		Credential: p.Credential(), Source: p.Source(), Presented: p.Presented, Grant: p.Grant(),
	}
}

// Options are what the dialect works with. Manager is required.
type Options struct {
	Manager Manager
	Caller  func(*http.Request) Caller // nil: as package auth says
	// Templates has what sandboxes are made from; nil: there is only the base.
	Templates Templates
	// Teams is what teams, keys, secrets and the machine are asked of.
	Teams Teams
	// Volumes has disks that outlive sandboxes; nil: there are none.
	Volumes Volumes
	// Meter has what sandboxes used; nil: nothing does.
	Meter Meter
	// Internet gives the public internet to callers who ask for it as E2B's clients
	// do: unless they are told otherwise.
	Internet bool
	// PublicTraffic opens the ports of sandboxes that are made here to everybody who
	// reaches the server, as E2B does, unless their maker restricts them.
	// Without it every one of them has a traffic token.
	PublicTraffic bool
	// Isolation is the wall of what is made here; "": the default. E2B has no
	// word for it.
	Isolation string
	// Sudo is the Spec's of what is made here, whose clients name root for any
	// command that is to have it.
	Sudo   bool
	Domain string       // under which sandboxes are reached; "": none
	Log    *slog.Logger // default: none
	Now    func() time.Time
}

// handler is the dialect.
type handler struct {
	o   Options
	m   Manager
	now func() time.Time

	secretTurn sync.Mutex // one change of secrets at a time
}

// route is one path, who may ask for it, and what answers. A pattern with a "?"
// at its end has parameters, which do reads; to any other they are errors.
type route struct {
	pattern string
	may     func(Caller) bool
	do      func(http.ResponseWriter, *http.Request, Caller) error
}

// Dialect answers requests of E2B's clients: every path, with 404 those that
// E2B does not have either.
type Dialect struct {
	*http.ServeMux
	templates TemplateService // nil: there are none
}

// New returns the dialect.
func New(o Options) *Dialect {
	h := &handler{o: o, m: o.Manager, now: o.Now}
	if h.now == nil {
		h.now = time.Now
	}
	if h.o.Caller == nil {
		h.o.Caller = callerOf
	}
	h.o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	read := func(c Caller) bool { return c.Read }
	manage := func(c Caller) bool { return c.Manage }
	routes := []route{
		{"GET /health", read, h.health},
		{"POST /sandboxes", manage, h.create(defaultTimeoutV1)},
		{"POST /v2/sandboxes", manage, h.create(defaultTimeoutV2)},
		{"GET /sandboxes?", read, h.listV1},
		{"GET /v2/sandboxes?", read, h.listV2},
		{"GET /sandboxes/{id}", read, h.get},
		{"DELETE /sandboxes/{id}", manage, h.remove},
		{"POST /sandboxes/{id}/timeout", manage, h.timeout},
		{"POST /sandboxes/{id}/refreshes", manage, h.refresh},
		{"POST /sandboxes/{id}/connect", manage, h.connect(true)},
		{"POST /v2/sandboxes/{id}/connect", manage, h.connect(false)},
		{"POST /sandboxes/{id}/pause", manage, h.pause},
		{"POST /sandboxes/{id}/resume", manage, h.resume},
		{"POST /sandboxes/{id}/fork", manage, h.fork},
		{"POST /sandboxes/{id}/snapshots", manage, h.createSnapshot},
		{"GET /snapshots?", read, h.listSnapshots},
		{"GET /sandboxes/metrics?", read, h.metricsOfMany},
		{"GET /sandboxes/{id}/metrics?", read, h.metrics},
		{"PUT /sandboxes/{id}/network", manage, h.setNetwork},
		{"GET /sandboxes/{id}/logs?", read, h.logsV1},
		{"GET /v2/sandboxes/{id}/logs?", read, h.logsV2},
		{"GET /volumes", read, h.listVolumes},
		{"POST /volumes", manage, h.createVolume},
		{"GET /volumes/{id}", read, h.getVolume},
		{"DELETE /volumes/{id}", manage, h.removeVolume},
	}
	for _, r := range slices.Concat(routes, h.teamRoutes(), h.adminRoutes(), h.templateRoutes()) {
		pattern, has := strings.CutSuffix(r.pattern, "?")
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			c := h.o.Caller(req)
			if !r.may(c) {
				writeError(w, sandbox.Errorf(sandbox.Denied, "this key has not the scope for that"))
				return
			}
			var err error
			if !has {
				_, err = parse(req)
			}
			if err == nil {
				err = r.do(w, req, c)
			}
			if err != nil {
				writeError(w, err)
			}
		})
	}
	templates, built := o.Templates.(TemplateService)
	if !built {
		for _, p := range unbuiltTemplates {
			mux.HandleFunc(p, func(w http.ResponseWriter, _ *http.Request) {
				writeError(w, sandbox.Errorf(sandbox.Unsupported, "%s: not available in this version", p))
			})
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, sandbox.Errorf(sandbox.NotFound, "%s %.200q: no such path and method", r.Method, r.URL.Path))
	})
	return &Dialect{mux, templates}
}

// ServeLink takes an archive for a build: clients send it without a key, to a
// link that they were given, which is good once and for that alone. It reports
// whether r was for one.
func (d *Dialect) ServeLink(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.URL.Path, UploadPath)
	if !ok || d.templates == nil || r.Method != http.MethodPut {
		return false
	}
	if err := d.templates.Upload(r.Context(), token, r.ContentLength, r.Body); err != nil {
		writeError(w, err)
	} else {
		w.WriteHeader(http.StatusOK)
	}
	return true
}

// Loggable is a path as a log may have it: one may end in what lets in.
func (d *Dialect) Loggable(path string) string {
	if strings.HasPrefix(path, UploadPath) {
		return UploadPath + "…"
	}
	return path
}

// WriteError answers with err as E2B would.
func (d *Dialect) WriteError(w http.ResponseWriter, status int, err error) {
	writeErrorAs(w, status, err)
}

// unbuiltTemplates are those that are answered where there are templates.
var unbuiltTemplates = []string{
	"GET /templates", "POST /templates", "POST /v2/templates", "GET /v2/templates", "POST /v3/templates",
	"GET /templates/{id}", "POST /templates/{id}", "DELETE /templates/{id}", "PATCH /templates/{id}",
	"PATCH /v2/templates/{id}", "GET /templates/{id}/{part}", "GET /templates/{id}/{part}/{hash}",
	"POST /templates/{id}/builds/{build}", "POST /v2/templates/{id}/builds/{build}",
	"GET /templates/{id}/builds/{build}/{part}", "POST /templates/tags", "DELETE /templates/tags",
}

// errorBody is an error as E2B has it.
type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, err error) {
	writeErrorAs(w, wire.Status(sandbox.KindOf(err)), err)
}

// describe is an error within an answer.
func describe(err error) errorBody {
	e := wire.Describe(err)
	if e.Hint != "" {
		e.Message += " (" + e.Hint + ")" // E2B's clients show one text
	}
	return errorBody{wire.Status(sandbox.KindOf(err)), e.Message}
}

func writeErrorAs(w http.ResponseWriter, status int, err error) {
	wire.Failed(w, err)
	w.Header().Set(api.HeaderError, wire.Describe(err).Code)
	wire.RetryAfter(w, err)
	wire.JSON(w, status, errorBody{status, describe(err).Message})
}

func (h *handler) health(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}
