package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// NetLogOptions select what NetLog yields. The zero value selects all that
// there is.
type NetLogOptions struct {
	After  uint64    // only what has a greater Seq
	Since  time.Time // only what happened from then on; zero: all
	Denied bool      // only what was refused
	Follow bool      // go on as more comes
}

// NetLog yields what a sandbox tried to reach, oldest first, and with Follow
// goes on until ctx ends or the sandbox is gone. It looks for a daemon that
// went away then, and goes on where it was. An error is yielded last.
func (c *Client) NetLog(ctx context.Context, id string, o NetLogOptions) iter.Seq2[api.NetRecord, error] {
	return func(yield func(api.NetRecord, error) bool) {
		o := o // each use of the sequence begins anew
		lines[api.NetRecord]{
			what: "record", follow: o.Follow,
			path: func() string { return path(id, "/netlog") + o.query() },
			seen: func(rec api.NetRecord) { o.After = max(o.After, rec.Seq) },
		}.of(ctx, c)(yield)
	}
}

func (o NetLogOptions) query() string {
	q := url.Values{}
	if o.After > 0 {
		q.Set("after", strconv.FormatUint(o.After, 10))
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
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
