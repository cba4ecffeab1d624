// Package agent calls the guest agent of one sandbox from the host, by a
// connection that the caller makes: it runs a command to its end, and puts an
// archive there.
//
// What the guest answers is hostile: output is handed on in pieces of bounded
// size and bounded in all by the caller, and an answer that is none is an
// error. No text of the guest becomes part of an error of this package, but
// for a refusal of an archive, which is escaped.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/stall"
)

const (
	maxMessage = 4 << 20 // bytes of one message of the guest
	maxAnswer  = 1 << 20
	maxReason  = 400 // bytes of a guest's refusal

	killTimeout = 5 * time.Second
	killSignal  = 9

	// idleTimeout is how long a connection is kept that nothing goes over.
	idleTimeout = 15 * time.Second
)

// Dial connects to the guest agent.
type Dial func(ctx context.Context) (net.Conn, error)

// Guest is one sandbox's agent, for several at once. Its connections are used
// again, and given up when idle. Close it after use.
type Guest struct {
	http *http.Client
	rpc  guestv1connect.ExecServiceClient
}

// New returns a Guest that is reached by dial.
func New(dial Dial) *Guest {
	c := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
			}
			return c, nil
		},
		DisableCompression: true,
		MaxIdleConns:       4,
		IdleConnTimeout:    idleTimeout,
	}}
	return &Guest{http: c, rpc: guestv1connect.NewExecServiceClient(c, "http://guest", connect.WithReadMaxBytes(maxMessage))}
}

// Close gives up idle connections.
func (g *Guest) Close() { g.http.CloseIdleConnections() }

// ErrBroken is the cause of an error for a guest that went away, or that
// answers nonsense.
var ErrBroken = errors.New("the guest broke off")

// Run runs a command and returns how it ended. Output is handed to out as it
// comes, if out is not nil. Where ctx ends first, the command and all that it
// started are killed.
func (g *Guest) Run(ctx context.Context, cmd *guestv1.Command, out func(stderr bool, b []byte)) (*guestv1.Exit, error) {
	id := "c" + rand.Text()
	exit, err := g.run(ctx, id, cmd, out)
	if err != nil && ctx.Err() != nil {
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		_, _ = g.rpc.Signal(kill, connect.NewRequest(&guestv1.SignalRequest{Id: id, Signal: killSignal, All: true}))
		return nil, context.Cause(ctx)
	}
	return exit, err
}

func (g *Guest) run(ctx context.Context, id string, cmd *guestv1.Command, out func(bool, []byte)) (*guestv1.Exit, error) {
	stream, err := g.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd}))
	if err != nil {
		return nil, refused(err)
	}
	defer stream.Close()
	var w stall.Watch
	for stream.Receive() {
		if err := watch(&w, stream.Msg()); err != nil {
			return nil, err
		}
		switch ev := stream.Msg().GetEvent().(type) {
		case *guestv1.Event_Output_:
			if out != nil {
				out(ev.Output.GetStream() == guestv1.Stream_STREAM_STDERR, ev.Output.GetData())
			}
		case *guestv1.Event_Exit:
			return ev.Exit, nil
		}
	}
	return nil, refused(errors.Join(stream.Err(), io.ErrUnexpectedEOF))
}

// watch returns an error for a guest that goes on without saying anything.
func watch(w *stall.Watch, ev *guestv1.Event) error {
	if err := w.Saw(len(ev.GetOutput().GetData()) > 0 || ev.GetExit() != nil); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// refused tells what a guest does not want to do from one that broke off.
func refused(err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodePermissionDenied:
		if e, ok := errors.AsType[*connect.Error](err); ok {
			return &Refusal{Text: fmt.Sprintf("%.*q", maxReason, e.Message())}
		}
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// Begin starts a command, and returns once it runs; the command goes on by
// itself under that ID. One that could not be started, or that ended at once,
// is no error: Ended says so.
func (g *Guest) Begin(ctx context.Context, id string, cmd *guestv1.Command) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream alone
	stream, err := g.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd}))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	defer stream.Close()
	if !stream.Receive() {
		return fmt.Errorf("%w: %w", ErrBroken, errors.Join(stream.Err(), io.ErrUnexpectedEOF))
	}
	return nil
}

// Ended returns how a command ended, and nil for one that runs.
func (g *Guest) Ended(ctx context.Context, id string) (*guestv1.Exit, error) {
	res, err := g.rpc.Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return res.Msg.GetProcess().GetExit(), nil
}

// Output hands what the guest still has of a command's output to out, for at
// most limit.
func (g *Guest) Output(ctx context.Context, id string, limit time.Duration, out func(stderr bool, b []byte)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := g.rpc.Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{Id: id}))
	if err != nil {
		return
	}
	defer stream.Close()
	var w stall.Watch
	for stream.Receive() && watch(&w, stream.Msg()) == nil {
		switch ev := stream.Msg().GetEvent().(type) {
		case *guestv1.Event_Output_:
			out(ev.Output.GetStream() == guestv1.Stream_STREAM_STDERR, ev.Output.GetData())
		case *guestv1.Event_Exit:
			return
		}
	}
}

// Shell returns a command that a login shell runs: bash where the image has
// it, else sh.
func Shell(text, user, cwd string, env map[string]string) *guestv1.Command {
	const pick = `[ -x /bin/bash ] && exec /bin/bash -l -c "$1"; exec /bin/sh -l -c "$1"`
	return &guestv1.Command{Argv: []string{"/bin/sh", "-c", pick, "sh", text}, User: user, Cwd: cwd, Env: env}
}

// Status says in words how a command ended.
func Status(exit *guestv1.Exit) string {
	switch exit.GetReason() {
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return "its memory used up"
	case guestv1.Reason_REASON_SIGNALLED, guestv1.Reason_REASON_KILLED:
		return fmt.Sprintf("signal %d", exit.GetSignal())
	case guestv1.Reason_REASON_TIMED_OUT:
		return "its time used up"
	case guestv1.Reason_REASON_NOT_STARTED:
		return fmt.Sprintf("status %d: it could not be started", exit.GetCode())
	}
	return fmt.Sprintf("status %d", exit.GetCode())
}

// Refusal is the guest's own reason, escaped and bounded.
type Refusal struct {
	Text     string
	notThere bool // what it is about
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Text }

// Extract puts a tar stream into the directory dir, as root and for owner; a
// directory that is there stays as it is. The agent bounds it, and refuses
// what would leave dir.
func (g *Guest) Extract(ctx context.Context, dir, owner string, tar io.Reader) error {
	q := url.Values{"path": {dir}, "user": {"root"}, "owner": {owner}}
	return g.send(ctx, http.MethodPost, "/carboy/archive?"+q.Encode(), tar, nil)
}

// send sends a request, with a tar stream unless body is nil, and hands the body
// of a good answer to take, if take is not nil. An answer that is no refusal
// either is ErrBroken.
func (g *Guest) send(ctx context.Context, method, path string, body io.Reader, take func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := g.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 && take != nil {
		return take(resp.Body)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	var refusal struct {
		Message string `json:"message"`
	}
	missing := resp.StatusCode == http.StatusNotFound
	switch bad := json.Unmarshal(answer, &refusal) != nil || refusal.Message == ""; {
	case bad && missing:
		refusal.Message = "not found"
	case bad:
		return fmt.Errorf("%w: %s answers with status %d", ErrBroken, req.URL.Path, resp.StatusCode)
	}
	return &Refusal{Text: fmt.Sprintf("%.*q", maxReason, refusal.Message), notThere: missing}
}
