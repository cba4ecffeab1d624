// Package inside serves services of the daemon's own to sandboxes that run, by their gates: each has those that its
// record says, for as long as it runs, and the next daemon serves them again.
//
// It refuses nothing itself: who calls is known by the sandbox that a handler was made for.
package inside

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Handlers make what serves a sandbox, by the name of the service. They are called once for each start of it.
type Handlers map[string]func(sb *sandbox.Sandbox) http.Handler

// Gates is a sandbox.Gate whose sandboxes have services of the daemon's own.
type Gates struct {
	sandbox.Gate
	log *slog.Logger

	mu       sync.Mutex
	handlers Handlers
	byID     map[string][]*offer.Standing
}

// Over returns Gates over others. Log is required.
func Over(g sandbox.Gate, log *slog.Logger) *Gates {
	return &Gates{Gate: g, log: log, byID: map[string][]*offer.Standing{}}
}

// Serve says what serves. It is called before any sandbox is opened or adopted.
func (g *Gates) Serve(h Handlers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handlers = h
}

// Open implements sandbox.Gate.
func (g *Gates) Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (*sandbox.Link, error) {
	link, err := g.Gate.Open(ctx, sb, takes, values)
	if err == nil {
		g.begin(sb)
	}
	return link, err
}

// Adopt implements sandbox.Gate.
func (g *Gates) Adopt(ctx context.Context, sb *sandbox.Sandbox, end *os.File) error {
	err := g.Gate.Adopt(ctx, sb, end)
	if err == nil {
		g.begin(sb)
	}
	return err
}

// upTime is how long a service may take to stand, once its sandbox runs.
const upTime = time.Minute

// Verify implements sandbox.Gate. The services stand when it returns.
func (g *Gates) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	how, err := g.Gate.Verify(ctx, sb, dial)
	if err != nil {
		return how, err
	}
	late := time.NewTimer(upTime)
	defer late.Stop()
	for _, s := range g.of(sb.ID) {
		select {
		case <-s.Up():
		case <-late.C:
			return nil, sandbox.Errorf(sandbox.Unavailable, "what carboy serves to it is not reached from inside").WithHint("%s", sandbox.LogHint)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return how, nil
}

// Close implements sandbox.Gate.
func (g *Gates) Close(ctx context.Context, id string) error {
	g.end(id)
	return g.Gate.Close(ctx, id)
}

// Shut ends all services. The sandboxes go on.
func (g *Gates) Shut() {
	g.mu.Lock()
	all := g.byID
	g.byID = map[string][]*offer.Standing{}
	g.mu.Unlock()
	var ended sync.WaitGroup
	for _, list := range all {
		for _, s := range list {
			ended.Go(s.End)
		}
	}
	ended.Wait()
}

func (g *Gates) of(id string) []*offer.Standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.byID[id])
}

// begin serves what sb is to have and has not yet.
func (g *Gates) begin(sb *sandbox.Sandbox) {
	names := sb.Spec.Own().Services()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byID[sb.ID] != nil {
		return
	}
	for _, name := range names {
		serve := g.handlers[name]
		if serve == nil { // another one serves it
			continue
		}
		id := sb.ID
		g.byID[id] = append(g.byID[id], offer.Stand(offer.Options{
			Handler: serve(sb.Clone()),
			Dial:    func(ctx context.Context) (io.ReadWriteCloser, error) { return g.Gate.OfferService(ctx, id, name) },
			Told: func(err error) {
				if err != nil && !errors.Is(err, context.Canceled) {
					g.log.Debug("offer a service to a sandbox", "id", id, "service", name, "error", err)
				}
			},
		}))
	}
}

func (g *Gates) end(id string) {
	g.mu.Lock()
	list := g.byID[id]
	delete(g.byID, id)
	g.mu.Unlock()
	for _, s := range list {
		s.End()
	}
}
