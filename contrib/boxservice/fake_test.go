package boxservice_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// pipe is one end of a connection in memory.
type pipe struct {
	in, out chan []byte
	mine    *sync.Once
	closed  chan struct{} // either end's closing closes it
}

func newPipe() (a, b *pipe) {
	there, back := make(chan []byte), make(chan []byte)
	once, closed := new(sync.Once), make(chan struct{})
	return &pipe{there, back, once, closed}, &pipe{back, there, once, closed}
}

func (p *pipe) Send(ctx context.Context, message []byte) error {
	select {
	case p.out <- message:
		return nil
	case <-p.closed:
		return rpc.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipe) Receive(ctx context.Context) ([]byte, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Close() error {
	p.mine.Do(func() { close(p.closed) })
	return nil
}

// fake is a runtime that answers by a function for each action, and notes what
// it was asked for. What it has no function for it answers with nothing in it.
type fake struct {
	t    *testing.T
	mu   sync.Mutex
	has  map[string]func(r *langbot.Request) (any, error)
	log  []string
	ends []*rpc.Peer
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, has: map[string]func(*langbot.Request) (any, error){}}
}

func (f *fake) on(action string, answer func(r *langbot.Request) (any, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.has[action] = answer
}

func (f *fake) serve(ctx context.Context, r *langbot.Request) (any, error) {
	f.mu.Lock()
	f.log = append(f.log, r.Action)
	answer := f.has[r.Action]
	f.mu.Unlock()
	if answer == nil {
		return map[string]any{}, nil
	}
	return answer(r)
}

// asked is what the runtime was asked for since the last time.
func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// dial is a connection to it.
func (f *fake) dial(context.Context) (rpc.Conn, error) {
	mine, theirs := newPipe()
	p := rpc.NewPeer(rpc.Options{Conn: theirs, Serve: f.serve})
	f.mu.Lock()
	f.ends = append(f.ends, p)
	f.mu.Unlock()
	go func() { _ = p.Run(context.Background()) }()
	return mine, nil
}

// newest is the runtime's end of the newest connection, to be cut.
func (f *fake) newest() *rpc.Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ends[len(f.ends)-1]
}

func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ends)
}
