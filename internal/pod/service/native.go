package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// timeSnapshot is how long a pod that speaks the protocol itself may take to say how things are.
const timeSnapshot = 5 * time.Second

// snapshotAgain is between two snapshots of a pod that ends a connection and says that its turn is under way.
const snapshotAgain = 100 * time.Millisecond

// outputOfNative is output of a pod that speaks the protocol itself: what its snapshot has of the assistant's text from an entry on.
func (p *pods) outputOfNative(ctx context.Context, r record.Pod, from int, wait bool) (out Output, err error) {
	at := from
	if from == Unread {
		at = p.read.of(r.Key())
	}
	for {
		out, err = p.snapshot(ctx, r, at, wait)
		if err != nil || !wait || out.Text != "" || out.Failed != "" || out.Status != wire.StatusRunning {
			break
		}
		select {
		case <-time.After(snapshotAgain):
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
	if err == nil && from == Unread {
		p.read.set(r.Key(), out.Next)
	}
	return out, err
}

// snapshot connects to a pod and reads what it has said. Where that is nothing and a turn is under way, it waits, if it is to, until that is over.
func (p *pods) snapshot(ctx context.Context, r record.Pod, at int, wait bool) (out Output, err error) {
	c, err := p.box.Dial(ctx, r)
	if wire.LivenessOf(err) == wire.Gone {
		return out, unreachable(r.Name)
	}
	if err != nil {
		return out, err
	}
	conn := wire.NewConn(c, wire.Options{MaxLine: maxSnapshot})
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if out, err = p.first(ctx, r, conn, at); err != nil || !wait || out.Text != "" || out.Status != wire.StatusRunning {
		return out, err
	}
	for {
		e, err := next(conn)
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case err != nil:
			return out, nil
		case e.Name == wire.EventRunEnd: // the next snapshot has what came
			return out, nil
		case e.Name == wire.EventError:
			said := new(wire.Error)
			if e.Into(said) == nil && said.Code != wire.CodeAlreadyRunning && said.Code != wire.CodeInvalidRequest {
				out.Failed = oneLine(said.Message)
				return out, nil
			}
		}
	}
}

// first reads the snapshot with which a connection begins.
func (p *pods) first(ctx context.Context, r record.Pod, conn *wire.Conn, at int) (out Output, err error) {
	select {
	case p.snapshots <- struct{}{}:
		defer func() { <-p.snapshots }()
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	late := time.AfterFunc(timeSnapshot, func() { conn.Close() })
	defer late.Stop()
	for {
		e, err := next(conn)
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case err != nil:
			return out, sandbox.Errorf(sandbox.Unavailable, "pod `%s`: its program did not say within %v what it has said", r.Name, timeSnapshot).
				WithHint("carboy pod stop %s ends it", r.Name)
		case e.Name == wire.EventSnapshot:
			var s wire.Snapshot
			if err := e.Into(&s); err != nil {
				return out, err
			}
			return said(s, at), nil
		}
	}
}

// next is the next event that can be read.
func next(conn *wire.Conn) (wire.Event, error) {
	for {
		e, err := conn.Event()
		if line, over := errors.AsType[*wire.LineError](err); over && !line.TooLong {
			continue
		}
		return e, err
	}
}

// maxSnapshots is how many are read at once of an owner's pods: each may take many times its length while it is.
const maxSnapshots = 2

// maxSnapshot is how long a snapshot may be, in bytes.
const maxSnapshot = 64 << 20

// said is what a snapshot has of the assistant's text from an entry on, joined by blank lines, and how the newest turn of those ended. A
// program that has begun anew has fewer entries than were read.
func said(s wire.Snapshot, from int) Output {
	if from > len(s.Entries) {
		from = 0
	}
	out := Output{First: from, Next: len(s.Entries), Status: s.Status}
	var parts []string
	for _, raw := range s.Entries[from:] {
		var e struct {
			Kind    string `json:"kind"`
			Role    string `json:"role"`
			Text    string `json:"text"`
			Content string `json:"content"`
			Result  string `json:"result"`
		}
		if json.Unmarshal(raw, &e) != nil {
			continue
		}
		text := e.Text + e.Content
		switch {
		case e.Kind == "end" && e.Result == transcript.Failed:
			out.Failed = oneLine(text)
		case e.Kind == "end":
			out.Failed = ""
		case (e.Kind == "assistant" || e.Role == "assistant") && text != "":
			parts = append(parts, text)
		}
	}
	if out.Text = strings.Join(parts, "\n\n"); out.Text != "" {
		out.Text += "\n"
	}
	return out
}
