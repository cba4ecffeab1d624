package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Ask sends one request of the action protocol, and reads its reply into reply. A refusal
// of the agent's is a *sandbox.Error of the kind that it says, with its words, escaped and
// bounded; what is no reply is ErrBroken. ctx bounds it all.
func (g *Guest) Ask(ctx context.Context, request, reply any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if line = append(line, '\n'); len(line) > action.MaxHeader {
		return sandbox.Errorf(sandbox.Invalid, "a request of %d bytes is longer than a guest reads: at most %d", len(line), action.MaxHeader)
	}
	c, err := g.Actions(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	_, werr := c.Write(line) // which may be refused before it was read
	raw, rerr := io.ReadAll(io.LimitReader(c, action.MaxReply+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case rerr != nil:
		return fmt.Errorf("%w: %w", ErrBroken, errors.Join(werr, rerr))
	}
	return readReply(raw, reply)
}

// saidKinds are the kinds that an agent may give its refusals: the others are not its to say.
var saidKinds = []sandbox.Kind{sandbox.Invalid, sandbox.NotFound, sandbox.Conflict, sandbox.Exhausted, sandbox.Unsupported, sandbox.Unavailable}

// readReply reads a reply, or the refusal that it is.
func readReply(raw []byte, reply any) error {
	if len(raw) > action.MaxReply {
		return fmt.Errorf("%w: a reply of more than %d bytes", ErrBroken, action.MaxReply)
	}
	var no struct {
		Error *string `json:"error"`
		Kind  string  `json:"kind"`
	}
	if err := strict.Known(raw, &no); err != nil || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return fmt.Errorf("%w: a reply that is no JSON object", ErrBroken)
	}
	if no.Error == nil {
		if err := strict.Known(raw, reply); err != nil {
			return fmt.Errorf("%w: a reply to something else", ErrBroken)
		}
		return nil
	}
	kind := sandbox.Kind(no.Kind)
	if !slices.Contains(saidKinds, kind) {
		kind = sandbox.Invalid
	}
	text := strings.ToValidUTF8((*no.Error)[:min(len(*no.Error), maxReason)], "?")
	return sandbox.Errorf(kind, "%s", term.Escape(strings.TrimSpace(text)))
}
