package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
)

// timeSnapshot is how long a pod that speaks the protocol itself may take to say how things are.
const timeSnapshot = 5 * time.Second

// snapshotAgain is between two snapshots of a pod that ends a connection and says that its turn is under way.
const snapshotAgain = 100 * time.Millisecond

// outputOfNative is output of a pod that speaks the protocol itself: what its snapshot has of the assistant's text from an entry on.
func (p *pods) outputOfNative(ctx context.Context, r record.Pod, from int, wait bool) (out Output, err error) {
	p.mu.Lock()
	at := from
	if from == Unread {
		at = p.read[r.Name+r.Token]
	}
	p.mu.Unlock()
	for {
		out, err = p.snapshot(ctx, r, at, wait)
		if err != nil || !wait || out.Text != "" || out.Status != wire.StatusRunning {
			break
		}
		select {
		case <-time.After(snapshotAgain):
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
	if err == nil && from == Unread {
		p.mu.Lock()
		p.read[r.Name+r.Token] = out.Next
		p.mu.Unlock()
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
	late := time.AfterFunc(timeSnapshot, func() { conn.Close() })
	defer late.Stop()
	known := false
	for {
		e, err := conn.Event()
		if line, over := errors.AsType[*wire.LineError](err); over && !line.TooLong {
			continue
		}
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case known && err != nil:
			return out, nil
		case err != nil:
			return out, unreachable(r.Name)
		}
		switch e.Name {
		case wire.EventSnapshot:
			var s wire.Snapshot
			if err := e.Into(&s); err != nil {
				return out, err
			}
			out, known = said(s, at), true
			if late.Stop(); !wait || out.Text != "" || s.Status != wire.StatusRunning {
				return out, nil
			}
		case wire.EventRunEnd, wire.EventError:
			return out, nil // the next snapshot has what came
		}
	}
}

// maxSnapshot is how long a snapshot may be, in bytes.
const maxSnapshot = 64 << 20

// said is what a snapshot has of the assistant's text from an entry on, joined by blank lines.
func said(s wire.Snapshot, from int) Output {
	out := Output{First: min(from, len(s.Entries)), Next: len(s.Entries), Status: s.Status}
	var parts []string
	for _, raw := range s.Entries[out.First:] {
		var e struct {
			Kind    string `json:"kind"`
			Role    string `json:"role"`
			Text    string `json:"text"`
			Content string `json:"content"`
		}
		if json.Unmarshal(raw, &e) != nil || e.Kind != "assistant" && e.Role != "assistant" {
			continue
		}
		if text := e.Text + e.Content; text != "" {
			parts = append(parts, text)
		}
	}
	if out.Text = strings.Join(parts, "\n\n"); out.Text != "" {
		out.Text += "\n"
	}
	return out
}
