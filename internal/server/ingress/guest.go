package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

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

// ServeHTTP passes a request on that names its sandbox as E2B does: one that
// Takes takes.
func (in *Ingress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, _ := in.target(r)
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
	p := auth.Of(r)
	caller := p.Caller
	if p.Peer == nil {
		caller = anyone // until the token is checked
		leave, ok := in.flows.enter(t.id)
		if !ok {
			fail(w, sandbox.Errorf(sandbox.Exhausted, "more than %d requests to this sandbox are under way", maxFlows))
			return
		}
		defer leave()
	}
	if t.port == sandbox.GuestPort && isPreflight(r) {
		AnswerPreflight(w, r) // it can't have the token
		return
	}
	sb, err := in.m.Get(r.Context(), caller, t.id)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound {
			err, t.port = errNoSandbox, 0
			fail = failTo(r, t)
		}
		fail(w, err)
		return
	}
	if t.port != sandbox.GuestPort {
		in.servePort(w, r, sb, t)
		return
	}
	in.serveEnvd(w, r, sb, t)
}

// serveEnvd passes a request on to a guest agent, which E2B's clients know as
// envd.
func (in *Ingress) serveEnvd(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, t target) {
	fail, p := failTo(r, t), auth.Of(r)
	signed := false
	if p.Peer == nil && !weak.On(weak.ServerTokenIgnored) {
		var err error
		if signed, err = admit(r, t, sb.Token, time.Now()); err != nil {
			refuseGuest(w, r, err)
			return
		}
	}
	g, ok := lookGuestPath(r.URL)
	if !ok || g.owner && p.Peer == nil {
		message := "the sandbox offers no such path"
		if controlPaths[r.URL.Path] {
			message = r.URL.Path + ": it is for the daemon alone to ask that of a sandbox"
		}
		failAs(w, r, t, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "%s", message))
		return
	}
	if r.URL.Path != "/health" { // which anybody may ask, and who asks wants to know
		if sb = in.wake(w, r, sb, fail); sb == nil {
			return
		}
	}
	in.serveAgent(w, r, sb, g, hop{fail: fail, pages: true, signed: signed})
}

// ServeOwner passes a request on that came below /v1/sandboxes/{id}/guest.
func (in *Ingress) ServeOwner(w http.ResponseWriter, r *http.Request) {
	sb, err := in.m.Get(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
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
	in.serveAgent(w, out, sb, g, hop{fail: wire.Error})
}

// serveAgent passes a request on to the guest agent, and starts the sandbox
// before where that is worth it.
func (in *Ingress) serveAgent(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, g guestPath, to hop) {
	to.port = sandbox.GuestPort
	if g.starts && sb.State != sandbox.StateRunning {
		var err error
		if sb, to.notice, err = in.m.EnsureRunning(r.Context(), anyone, sb.ID); err != nil {
			to.fail(w, err)
			return
		}
	}
	in.forward(w, r, sb, to)
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
// sandbox, or a signature by it where E2B allows one. signed: nothing but that signature
// let it in, and what it signs alone may be done.
func admit(r *http.Request, t target, token string, now time.Time) (signed bool, err error) {
	if token == "" {
		return false, errNoToken
	}
	if v := r.Header.Values(headerToken); len(v) > 0 {
		if len(v) != 1 || !same(v[0], token) {
			return false, errWrongToken
		}
		return false, nil
	}
	if t.port == sandbox.GuestPort {
		switch r.URL.Path {
		case "/health": // as with E2B, a caller who knows the ID may ask
			return false, nil
		case "/files":
			return true, checkSignature(r, token, now)
		}
	}
	return false, errNoToken
}

// same compares secrets in a time that does not depend on where they differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
