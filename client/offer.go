package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
)

// Offer serves a sandbox: what it calls at http://gate.carboy.internal/SERVICE/ goes to
// handler, for as long as ctx lasts, and is nil then. Daemon and gate may die
// meanwhile: the offer is made again. Where the sandbox does not run it waits for that,
// and told says so; what it can't mend, as of a sandbox that was removed, it returns.
// A sandbox may call the services that its policy has.
func (c *Client) Offer(ctx context.Context, id, service string, handler http.Handler, told func(error)) error {
	stood := false
	return offer.Serve(ctx, offer.Options{
		Handler: handler,
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			conn, err := c.become(ctx, http.MethodPost, path(id, "/offers/"+url.PathEscape(service)), offer.Protocol)
			if c.lost(err) {
				c.dialAgain(ctx)
			}
			stood = stood || err == nil
			return conn, err
		},
		Again: func(err error) bool {
			kind := KindOf(err)
			// A conflict may be this very offer, which has broken off and is not
			// missed yet, or a sandbox that was stopped and may be started.
			return kind == Unavailable || stood && kind == Conflict
		},
		Told: told,
	})
}
