package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
)

// Finish tells that the client of an ephemeral sandbox is done with it: it
// ends now, not when its client has been missed.
func (c *Client) Finish(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, path(id, "/finish"), nil, nil)
}

// Hold keeps an ephemeral sandbox alive until ctx ends, and returns ctx's
// cause then. Where the daemon goes away it looks for it for up to 60 seconds.
// Any other return is an error: the sandbox is gone, or nobody answers.
func (c *Client) Hold(ctx context.Context, id string) error {
	var b agent.Backoff
	for {
		err := c.holdOnce(ctx, id, b.Reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if KindOf(err) != Unavailable {
			return err
		}
		if !b.Wait(ctx) {
			return cmp.Or(context.Cause(ctx), err)
		}
		c.dialAgain(ctx)
	}
}

// holdOnce holds until the connection breaks. beat is called for each sign of
// life.
func (c *Client) holdOnce(ctx context.Context, id string, beat func()) error {
	resp, err := c.send(ctx, c.http, http.MethodGet, path(id, "/hold"), nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var buf [64]byte
	for {
		_, err := resp.Body.Read(buf[:])
		if err != nil {
			return c.sendError(ctx, err)
		}
		beat()
	}
}

// Events yields a sandbox's log, oldest first, and with follow goes on as
// events happen, until ctx ends or the sandbox is gone. An error is yielded
// last.
func (c *Client) Events(ctx context.Context, id string, follow bool) iter.Seq2[api.Event, error] {
	p := path(id, "/events")
	if follow {
		p += "?follow=1"
	}
	return lines[api.Event]{what: "event", path: func() string { return p }}.of(ctx, c)
}

// ChangesOptions select what Changes streams.
type ChangesOptions = api.ChangesRequest

// Changes streams what was changed below /workspace. A stream that is cut
// short ends with an error, never as if it were whole.
func (c *Client) Changes(ctx context.Context, id string, o ChangesOptions) (io.ReadCloser, error) {
	return c.changes(ctx, path(id, "/changes"), o)
}

func (c *Client) changes(ctx context.Context, at string, o ChangesOptions) (io.ReadCloser, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	resp, err := c.send(ctx, c.http, http.MethodPost, at, bytes.NewReader(body), "application/json")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
