package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// anyone is with whose rights a guest is looked up once the request proved
// otherwise that it may reach it.
var anyone = sandbox.Caller{Admin: true}

// guestPath says what a path of the guest agent takes.
type guestPath struct {
	owner  bool // only who owns the sandbox, not who has its token
	starts bool // worth starting a sandbox for that ended by itself
}

// guestPaths are the paths of the guest agent that are reachable at all. That
// of a service stands for its methods. /init is left out on purpose: what it
// sets is the daemon's to say.
var guestPaths = map[string]guestPath{
	"/health":                       {},
	"/metrics":                      {},
	"/envs":                         {},
	"/files":                        {starts: true},
	"/files/compose":                {starts: true},
	"/process.Process/":             {},
	"/process.Process/Start":        {starts: true},
	"/filesystem.Filesystem/":       {starts: true},
	"/carboy/archive":               {owner: true, starts: true},
	"/carboy/tools/read":            {owner: true, starts: true},
	"/carboy/tools/write":           {owner: true, starts: true},
	"/carboy/tools/edit":            {owner: true, starts: true},
	"/carboy/tools/glob":            {owner: true, starts: true},
	"/carboy/tools/grep":            {owner: true, starts: true},
	"/carboy.guest.v1.ExecService/": {owner: true},
	// The others speak of commands, and those would be gone.
	"/carboy.guest.v1.ExecService/Start": {owner: true, starts: true},
}

// controlPaths are those of envd that E2B too keeps from its clients: what
// they do, the daemon does in its own way, or has no need of.
var controlPaths = map[string]bool{
	"/init": true, "/freeze": true, "/unfreeze": true, "/collapse": true,
	"/fsfreeze": true, "/fsthaw": true, "/upgrade": true,
}

// lookGuestPath finds what u asks of the guest agent. Only the plain spelling
// of a path is found.
func lookGuestPath(u *url.URL) (guestPath, bool) {
	if u.RawPath != "" {
		return guestPath{}, false
	}
	if g, ok := guestPaths[u.Path]; ok && !strings.HasSuffix(u.Path, "/") {
		return g, true
	}
	i := strings.LastIndexByte(u.Path, '/')
	if i < 1 || i == len(u.Path)-1 {
		return guestPath{}, false
	}
	g, ok := guestPaths[u.Path[:i+1]]
	return g, ok
}

// route splits what is for a guest from what is for the API.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if t, ok := s.target(r); ok {
		s.serveTarget(w, r, t)
		return
	}
	s.api.ServeHTTP(w, r)
}

// serveTarget passes a request on that named its sandbox as E2B does.
func (s *Server) serveTarget(w http.ResponseWriter, r *http.Request, t target) {
	fail := failTo(r, t)
	if r.ProtoMajor == 1 {
		// An answer does not wait for the end of a body that nobody reads; HTTP/2
		// needs it not.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if t.port == 0 || r.Method == http.MethodConnect {
		fail(w, sandbox.Errorf(sandbox.Invalid, "no such sandbox and port").
			WithHint("PORT-ID.DOMAIN, or the headers %s and %s", headerSandbox, headerPort))
		return
	}
	p := principalOf(r)
	caller := p.caller
	if p.peer == nil {
		caller = anyone // until the token is checked
		leave, ok := s.flows.enter(t.id)
		if !ok {
			fail(w, sandbox.Errorf(sandbox.Exhausted, "more than %d requests to this sandbox are under way", maxFlows))
			return
		}
		defer leave()
	}
	if t.port == sandbox.GuestPort && isPreflight(r) {
		answerPreflight(w, r) // it can't have the token
		return
	}
	sb, err := s.m.Get(r.Context(), caller, t.id)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound {
			err, t.port = errNoSandbox, 0
			fail = failTo(r, t)
		}
		fail(w, err)
		return
	}
	if t.port != sandbox.GuestPort {
		s.servePort(w, r, sb, t)
		return
	}
	s.serveEnvd(w, r, sb, t)
}

// serveEnvd passes a request on to a guest agent, which E2B's clients know as
// envd.
func (s *Server) serveEnvd(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, t target) {
	fail, p := failTo(r, t), principalOf(r)
	if p.peer == nil && !weak.On(weak.ServerTokenIgnored) {
		if err := admit(r, t, sb.Token, time.Now()); err != nil {
			refuseGuest(w, r, err)
			return
		}
	}
	g, ok := lookGuestPath(r.URL)
	if !ok || g.owner && p.peer == nil {
		message := "the sandbox offers no such path"
		if controlPaths[r.URL.Path] {
			message = r.URL.Path + ": it is for the daemon alone to ask that of a sandbox"
		}
		failAs(w, r, t, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "%s", message))
		return
	}
	if r.URL.Path != "/health" { // which anybody may ask, and who asks wants to know
		if sb = s.wake(w, r, sb, fail); sb == nil {
			return
		}
	}
	s.serveAgent(w, r, sb, g, hop{fail: fail, pages: true})
}

// serveOwner passes a request on that came below /v1/sandboxes/{id}/guest.
func (s *Server) serveOwner(w http.ResponseWriter, r *http.Request) {
	sb, err := s.m.Get(r.Context(), principalOf(r).caller, r.PathValue("id"))
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Path = "/" + r.PathValue("path")
	if r.URL.RawPath != "" {
		out.URL.RawPath = r.URL.RawPath // refused below
	}
	g, ok := lookGuestPath(out.URL)
	if !ok {
		wire.Error(w, sandbox.Errorf(sandbox.NotFound, "the guest offers no such path"))
		return
	}
	s.serveAgent(w, out, sb, g, hop{fail: wire.Error})
}

// serveAgent passes a request on to the guest agent, and starts the sandbox
// before where that is worth it.
func (s *Server) serveAgent(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, g guestPath, to hop) {
	to.port = sandbox.GuestPort
	if g.starts && sb.State != sandbox.StateRunning {
		var err error
		if sb, to.notice, err = s.m.EnsureRunning(r.Context(), anyone, sb.ID); err != nil {
			to.fail(w, err)
			return
		}
	}
	s.forward(w, r, sb, to)
}

// notRunning says why a sandbox can't be reached.
func notRunning(sb *sandbox.Sandbox) error {
	if sb.State == sandbox.StateStopped {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is stopped", sb.Spec.Name).
			WithHint("carboy start %s", sb.Spec.Name)
	}
	return sandbox.Errorf(sandbox.Unavailable, "sandbox %s: it is %s", sb.Spec.Name, sb.State).WithHint("try again")
}

// failer writes an error as one dialect has it.
type failer func(w http.ResponseWriter, err error)

// admit says why r may not go where it wants to: it needs the token of its
// sandbox, or a signature by it where E2B allows one.
func admit(r *http.Request, t target, token string, now time.Time) error {
	if token == "" {
		return errNoToken
	}
	if v := r.Header.Values(headerToken); len(v) > 0 {
		if len(v) != 1 || !same(v[0], token) {
			return errWrongToken
		}
		return nil
	}
	if t.port == sandbox.GuestPort {
		switch r.URL.Path {
		case "/health": // as with E2B, whoever knows the ID may ask
			return nil
		case "/files":
			return checkSignature(r, token, now)
		}
	}
	return errNoToken
}

// same compares secrets in a time that does not depend on where they differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// needs lets h serve only callers whose key has a scope.
func needs(scope key.Scope, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !principalOf(r).allows(scope) {
			wire.Error(w, sandbox.Errorf(sandbox.Denied, "this key has not the scope %s", scope))
			return
		}
		h(w, r)
	}
}
