package egress

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// offersDir is where the socket is by which services are offered to the gate of
// dir: in that gate's own directory, so that what is offered to one sandbox is
// within no other's reach.
func offersDir(dir string) string {
	if weak.On(weak.NetOffersShared) {
		return filepath.Dir(dir)
	}
	return dir
}

// OfferService implements sandbox.Gate: it offers a service to a sandbox. The
// connection is for offer.Serve, here or wherever it is passed on to.
func (g *Gates) OfferService(ctx context.Context, id, service string) (net.Conn, error) {
	one, err := g.known(id)
	if err != nil {
		return nil, err
	}
	if err := one.await(ctx); err != nil {
		return nil, gateAway(err)
	}
	c, err := home.Dial(ctx, filepath.Join(offersDir(one.dir), fileOffers))
	if err != nil {
		return nil, gateAway(err)
	}
	err = offer.Greet(ctx, c, service)
	if err == nil {
		return c, nil
	}
	_ = c.Close()
	no, ok := errors.AsType[*offer.RefusedError](err)
	switch {
	case !ok:
		return nil, gateAway(err)
	case no.Code == offer.CodeTaken:
		return nil, sandbox.Errorf(sandbox.Conflict, "service %s: another program offers it to this sandbox", service).
			WithHint("end that one first, or offer this one under another name")
	case no.Code == offer.CodeUnknown:
		return nil, sandbox.NoService(one.name(), service, "")
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "service %s: %s", service, no.Message)
}

// gateAway is why a gate could not be asked, which passes.
func gateAway(err error) error {
	e := sandbox.Errorf(sandbox.Unavailable, "the sandbox's gate does not answer yet").WithHint("try again")
	e.Err = err
	return e
}
