package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/carboy-sandbox/carboy/internal/agent"
)

// maxEventLine bounds a line of a stream, in bytes.
const maxEventLine = 64 << 10

// lines are an answer of a line of JSON for each T. An empty line is a sign of life.
type lines[T any] struct {
	what    string        // that a T is, for errors
	path    func() string // to ask for them, and for the rest after a daemon went away
	seen    func(T)       // is told of each before it is yielded; nil: nobody is
	follow  bool          // a daemon that went away is looked for
	endless bool          // an answer that ends is one of a daemon that leaves
}

// of yields them, an error last. What is gone when it is asked for again has ended, unless it
// has no end.
func (l lines[T]) of(ctx context.Context, c *Client) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var b agent.Backoff
		for again := false; ; again = true {
			done, err := l.once(ctx, c, &b, yield)
			if done || again && !l.endless && KindOf(err) == NotFound {
				return
			}
			if l.follow && KindOf(err) == Unavailable && b.Wait(ctx) {
				c.dialAgain(ctx)
				continue
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			var none T
			yield(none, err)
			return
		}
	}
}

// once yields until the stream ends or breaks, and reports whether that was all.
func (l lines[T]) once(ctx context.Context, c *Client, b *agent.Backoff, yield func(T, error) bool) (done bool, err error) {
	resp, err := c.send(ctx, c.http, http.MethodGet, l.path(), nil, "")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, maxEventLine)
	for sc.Scan() {
		b.Reset()
		if len(sc.Bytes()) == 0 {
			continue
		}
		var one T
		if err := json.Unmarshal(sc.Bytes(), &one); err != nil {
			if broken := sc.Err(); broken != nil { // in the middle of a line
				return false, c.sendError(ctx, broken)
			}
			return false, fmt.Errorf("decode %s: %w", l.what, err)
		}
		if l.seen != nil {
			l.seen(one)
		}
		if !yield(one, nil) {
			return true, nil
		}
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return false, fmt.Errorf("decode %s: %w", l.what, err)
	case err != nil:
		return false, c.sendError(ctx, err)
	case l.endless:
		return false, c.sendError(ctx, io.ErrUnexpectedEOF)
	}
	return true, nil
}
