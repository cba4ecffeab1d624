package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
)

// NetLogOptions select what NetLog yields. The zero value selects all that
// there is.
type NetLogOptions struct {
	After  uint64 // only what has a greater Seq
	Denied bool   // only what was refused
	Follow bool   // go on as more comes
}

// NetLog yields what a sandbox tried to reach, oldest first, and with Follow
// goes on until ctx ends or the sandbox is gone. It looks for a daemon that
// went away then, and goes on where it was. An error is yielded last.
func (c *Client) NetLog(ctx context.Context, id string, o NetLogOptions) iter.Seq2[api.NetRecord, error] {
	return func(yield func(api.NetRecord, error) bool) {
		o := o // each use of the sequence begins anew
		var b agent.Backoff
		for again := false; ; again = true {
			done, err := c.netLogOnce(ctx, id, &o, &b, yield)
			if done || again && KindOf(err) == NotFound {
				return
			}
			if o.Follow && KindOf(err) == Unavailable && b.Wait(ctx) {
				c.dialAgain(ctx)
				continue
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			yield(api.NetRecord{}, err)
			return
		}
	}
}

// netLogOnce yields until the stream ends or breaks. It keeps in o how far it
// came, and reports whether that was all.
func (c *Client) netLogOnce(ctx context.Context, id string, o *NetLogOptions, b *agent.Backoff, yield func(api.NetRecord, error) bool) (done bool, err error) {
	resp, err := c.send(ctx, c.http, http.MethodGet, path(id, "/netlog")+o.query(), nil, "")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, maxEventLine)
	for sc.Scan() {
		b.Reset()
		if len(sc.Bytes()) == 0 {
			continue // a sign of life
		}
		var rec api.NetRecord
		if err := json.Unmarshal(sc.Bytes(), &rec); err != nil {
			if broken := sc.Err(); broken != nil { // in the middle of a line
				return false, c.sendError(ctx, broken)
			}
			return false, fmt.Errorf("decode record: %w", err)
		}
		o.After = max(o.After, rec.Seq)
		if !yield(rec, nil) {
			return true, nil
		}
	}
	switch err := sc.Err(); {
	case err == nil:
		return true, nil
	case errors.Is(err, bufio.ErrTooLong):
		return false, fmt.Errorf("decode record: %w", err)
	default:
		return false, c.sendError(ctx, err)
	}
}

func (o NetLogOptions) query() string {
	q := url.Values{}
	if o.After > 0 {
		q.Set("after", strconv.FormatUint(o.After, 10))
	}
	if o.Denied {
		q.Set("denied", "1")
	}
	if o.Follow {
		q.Set("follow", "1")
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}
