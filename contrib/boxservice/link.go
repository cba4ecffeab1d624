package boxservice

import (
	"context"
	"errors"
	"fmt"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxCalls is how many calls are under way on one connection: fewer than a
// runtime takes, so that none is refused for their number.
const maxCalls = rpc.MaxInFlight - 8

// link is one connection to a runtime.
type link struct {
	peer  *rpc.Peer
	slots chan struct{}
	stop  context.CancelFunc
	over  chan struct{} // closed once the peer has ended, with err set
	err   error
}

// newLink begins to read conn, which is the link's from here on.
func newLink(conn rpc.Conn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		peer:  rpc.NewPeer(rpc.Options{Conn: conn, Serve: serve}),
		slots: make(chan struct{}, maxCalls), stop: cancel, over: make(chan struct{}),
	}
	go func() {
		defer close(l.over)
		defer cancel()
		l.err = l.peer.Run(ctx)
	}()
	return l
}

// serve answers what a runtime may ask of a client: whether it is there.
func serve(_ context.Context, r *langbot.Request) (any, error) {
	if r.Action == langbot.ActionPing {
		return none{}, nil
	}
	return nil, rpc.UnknownActionError(r.Action)
}

// cut ends the connection, and waits for nothing.
func (l *link) cut() { l.stop() }

// Close ends the connection and the calls on it, and waits for their end.
func (l *link) Close() {
	l.stop()
	<-l.over
}

// call sends one request and waits for its answer until ctx ends. An error of
// the runtime's comes back by its class; a connection that breaks is
// ErrUnavailable, and what was asked for may have been done.
func (l *link) call(ctx context.Context, action string, data any, scope *langbot.Context, reply any) error {
	return l.do(ctx, action, func() error { return l.peer.Call(ctx, action, data, scope, reply) })
}

// send sends a file, and returns the key by which an action names it.
func (l *link) send(ctx context.Context, content []byte, ext string) (key string, err error) {
	err = l.do(ctx, langbot.ActionFileChunk, func() error {
		key, err = l.peer.SendFile(ctx, content, ext)
		return err
	})
	return key, err
}

// do does one thing with the peer when it is its turn.
func (l *link) do(ctx context.Context, action string, f func() error) error {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return late(ctx, action)
	case <-l.peer.Done():
		return lost(rpc.ErrClosed)
	}
	err := f()
	remote, isRemote := errors.AsType[*rpc.RemoteError](err)
	switch {
	case err == nil:
		return nil
	case isRemote:
		return fromMessage(remote.Message)
	case errors.Is(err, rpc.ErrClosed):
		return lost(err)
	case ctx.Err() != nil:
		return late(ctx, action)
	}
	return &sandbox.Error{Kind: sandbox.Internal, Msg: err.Error(), Err: err}
}

// lost is the error of a call whose connection broke.
func lost(cause error) error {
	return &sandbox.Error{
		Kind: sandbox.Unavailable, Msg: "box runtime: the connection was lost",
		Err: errors.Join(ErrUnavailable, cause),
	}
}

// late is the error of a call that ctx ended.
func late(ctx context.Context, action string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return &sandbox.Error{
		Kind: sandbox.Unavailable, Msg: fmt.Sprintf("%s: no answer in time; it may still be done", action),
		Err: ctx.Err(),
	}
}
