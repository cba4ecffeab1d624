// Package ingress is the way into sandboxes, for requests that name one by the
// host or by headers, as E2B's clients do, and for those below
// /v1/sandboxes/{id}/guest: to the guest agent, which those clients know as
// envd, and to the ports of the servers inside.
//
// It refuses requests over TCP that lack the sandbox's own token or a signature
// by it, every path of the agent that is not listed here, and more requests at
// once than one sandbox may have. It keeps our keys and tokens from what runs
// inside, and what only the daemon may say out of what comes back.
package ingress

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
)

// Manager is what the way into sandboxes asks of the domain.
// *sandbox.Manager is one, and documents each method.
type Manager interface {
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	SetTTL(ctx context.Context, c sandbox.Caller, ref string, ttl time.Duration) (*sandbox.Sandbox, error)
	EnsureRunning(ctx context.Context, c sandbox.Caller, ref string) (sb *sandbox.Sandbox, notice string, err error)
	Dial(ctx context.Context, c sandbox.Caller, ref string, port int) (net.Conn, error)
	OfferService(ctx context.Context, c sandbox.Caller, ref, service string) (net.Conn, error)
}

// anyone is with whose rights a guest is looked up once the request proved
// otherwise that it may reach it.
var anyone = sandbox.Caller{Admin: true}

// Options are what an Ingress works with. Manager is required.
type Options struct {
	Manager Manager
	Tenants auth.Tenants // whose keys no server inside is told
	// Domain is under which sandboxes are reached as PORT-ID.Domain; "": not.
	Domain string
	// PublicTraffic opens the ports of a sandbox without a traffic token to
	// everybody who reaches the server.
	PublicTraffic bool
	// Browsers opens the loopback listener whose requests ServeBrowser answers, if
	// it is not open yet, and returns its port; nil: there is none.
	Browsers func(ctx context.Context) (port int, err error)
	Log      *slog.Logger // default: none
}

// Ingress passes requests on to sandboxes.
type Ingress struct {
	o       Options
	m       Manager
	log     *slog.Logger
	proxy   *guestProxy
	resumes *resumes
	flows   flows
	links   links
}

// New returns an Ingress.
func New(o Options) *Ingress {
	in := &Ingress{o: o, m: o.Manager, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), resumes: newResumes(o.Manager)}
	in.proxy = newGuestProxy(in.m, in.log)
	return in
}

// Close ends the connections to guests that are idle, and the starts of
// sandboxes that requests wait for.
func (in *Ingress) Close() {
	in.resumes.close()
	in.proxy.close()
}

// Takes reports whether a request is for a sandbox, not for the API.
func (in *Ingress) Takes(r *http.Request) bool {
	_, ok := in.target(r)
	return ok
}

// Named reports whether sandboxes are reached by the host that r names: one's
// own, or the name that all share.
func (in *Ingress) Named(r *http.Request) bool {
	_, own := parseHost(r.Host, in.o.Domain)
	return own || in.o.Domain != "" && HostName(r.Host) == sharedHost+"."+in.o.Domain
}
