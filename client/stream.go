package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
)

const maxEventLine = 64 << 10

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
	return func(yield func(api.Event, error) bool) {
		p := path(id, "/events")
		if follow {
			p += "?follow=1"
		}
		resp, err := c.send(ctx, c.http, http.MethodGet, p, nil, "")
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, maxEventLine)
		for sc.Scan() {
			if len(sc.Bytes()) == 0 {
				continue // a sign of life
			}
			var ev api.Event
			if err := json.Unmarshal(sc.Bytes(), &ev); err != nil {
				yield(ev, fmt.Errorf("decode event: %w", err))
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(api.Event{}, c.sendError(ctx, err))
		}
	}
}

// ChangesOptions select what Changes streams.
type ChangesOptions struct {
	Content bool     // file contents too, not just digests
	Paths   []string // only these below /workspace, and what is below them; none: all
}

// Changes streams what was changed below /workspace. A stream that is cut
// short ends with an error, never as if it were whole.
func (c *Client) Changes(ctx context.Context, id string, o ChangesOptions) (io.ReadCloser, error) {
	q := url.Values{"path": o.Paths}
	if o.Content {
		q.Set("content", "1")
	}
	resp, err := c.send(ctx, c.http, http.MethodGet, path(id, "/changes")+"?"+q.Encode(), nil, "")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
