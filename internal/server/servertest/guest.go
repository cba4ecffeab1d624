// Package servertest has what tests of the server, the client and the daemon
// share: a guest agent whose commands are Go functions, and a daemon around
// it that can be killed and started anew. It is for tests alone.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/guest"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
)

// Program is what a command of a Guest does.
type Program func(ctx context.Context, p *Process) *guestv1.Exit

// Process is one command of a Guest.
type Process struct {
	Argv    []string
	Stdin   *io.PipeReader
	Resized chan *guestv1.Terminal
	Signals chan int32

	input *io.PipeWriter
	done  chan struct{}

	mu      sync.Mutex
	wake    chan struct{} // closed and replaced whenever something below changes
	out     [2][]byte     // stdout, stderr
	acked   uint64
	exit    *guestv1.Exit
	started int // how often Start was called
}

// Print writes to stdout.
func (p *Process) Print(format string, args ...any) { p.write(0, fmt.Sprintf(format, args...)) }

// PrintErr writes to stderr.
func (p *Process) PrintErr(format string, args ...any) { p.write(1, fmt.Sprintf(format, args...)) }

func (p *Process) write(stream int, s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[stream] = append(p.out[stream], s...)
	p.changed()
}

func (p *Process) changed() {
	close(p.wake)
	p.wake = make(chan struct{})
}

// Starts returns how often this command was started: once, for who does not
// know better.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// Guest is a guest agent without a sandbox. It keeps every command's output.
type Guest struct {
	guestv1connect.UnimplementedExecServiceHandler

	// Programs are what commands can be, by argv[0].
	Programs map[string]Program
	// Agent answers what is not of the ExecService on the agent's port, and
	// Ports what comes to others. Set them before the guest is used.
	Agent, Ports http.Handler
	// Actions answers the line of a request of the action protocol; nil: the agent is of
	// a version that has none. Set it before the guest is used.
	Actions func(line []byte) (reply string)

	mu    sync.Mutex
	procs map[string]*Process
	conns map[net.Conn]struct{}
	died  chan struct{}
	wg    sync.WaitGroup
}

// NewGuest returns a guest without programs.
func NewGuest() *Guest {
	return &Guest{
		Programs: map[string]Program{}, Agent: http.NotFoundHandler(), Ports: http.NotFoundHandler(),
		procs: map[string]*Process{}, conns: map[net.Conn]struct{}{}, died: make(chan struct{}),
	}
}

// Serve answers on one connection until it ends: sandboxtest.Fake's Serve.
func (g *Guest) Serve(_ string, port int, c net.Conn) {
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	h := g.Ports
	if port == 49983 {
		mux := http.NewServeMux()
		mux.Handle(guestv1connect.NewExecServiceHandler(g))
		mux.Handle("/", g.Agent)
		h = g.actions(mux)
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	l := &oneConn{c: c, done: make(chan struct{})}
	srv := &http.Server{Handler: h, Protocols: &p, ConnState: func(_ net.Conn, st http.ConnState) {
		if st == http.StateClosed || st == http.StateHijacked {
			l.end()
		}
	}}
	_ = srv.Serve(l) // it ends with the connection
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
}

// Die ends every command and connection, and forgets them all: what the end
// of an instance does.
func (g *Guest) Die() {
	g.mu.Lock()
	close(g.died)
	g.died = make(chan struct{})
	for c := range g.conns {
		_ = c.Close()
	}
	g.procs = map[string]*Process{}
	g.mu.Unlock()
	g.wg.Wait()
}

// Process returns a command that was started, or nil.
func (g *Guest) Process(id string) *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.procs[id]
}

// Start implements the service.
func (g *Guest) Start(ctx context.Context, r *connect.Request[guestv1.StartRequest], s *connect.ServerStream[guestv1.Event]) error {
	argv := r.Msg.GetCommand().GetArgv()
	g.mu.Lock()
	p := g.procs[r.Msg.GetId()]
	if p == nil {
		run := g.Programs[argv[0]]
		if run == nil {
			g.mu.Unlock()
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no program %q", argv[0]))
		}
		p = &Process{
			Argv: argv, Resized: make(chan *guestv1.Terminal, 16), Signals: make(chan int32, 16),
			wake: make(chan struct{}), done: make(chan struct{}),
		}
		p.Stdin, p.input = io.Pipe()
		g.procs[r.Msg.GetId()] = p
		g.launch(p, run)
	}
	p.mu.Lock()
	p.started++
	p.mu.Unlock()
	g.mu.Unlock()
	return follow(ctx, p, [2]uint64{}, s)
}

func (g *Guest) launch(p *Process, run Program) {
	ctx, cancel := context.WithCancel(context.Background())
	died := g.died
	g.wg.Go(func() {
		select {
		case <-died:
			cancel()
		case <-p.done:
		}
	})
	g.wg.Go(func() {
		defer cancel()
		defer close(p.done)
		exit := run(ctx, p)
		_ = p.Stdin.CloseWithError(errEnded)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exit = exit
		p.changed()
	})
}

var errEnded = errors.New("the command has ended")

// Follow implements the service.
func (g *Guest) Follow(ctx context.Context, r *connect.Request[guestv1.FollowRequest], s *connect.ServerStream[guestv1.Event]) error {
	p := g.Process(r.Msg.GetId())
	if p == nil {
		return connect.NewError(connect.CodeNotFound, errors.New("no such command"))
	}
	return follow(ctx, p, [2]uint64{r.Msg.GetStdoutOffset(), r.Msg.GetStderrOffset()}, s)
}

const chunk = 16 << 10

func follow(ctx context.Context, p *Process, at [2]uint64, s *connect.ServerStream[guestv1.Event]) error {
	err := s.Send(&guestv1.Event{Event: &guestv1.Event_Started_{Started: &guestv1.Event_Started{Pid: 1}}})
	if err != nil {
		return err
	}
	for {
		p.mu.Lock()
		wake, exit := p.wake, p.exit
		var events []*guestv1.Event
		for i := range at {
			if fresh := p.out[i][min(at[i], uint64(len(p.out[i]))):]; len(fresh) > 0 {
				fresh = slices.Clone(fresh[:min(len(fresh), chunk)])
				events = append(events, &guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{
					Stream: guestv1.Stream(i + 1), Offset: at[i], Data: fresh,
				}}})
				at[i] += uint64(len(fresh))
			}
		}
		p.mu.Unlock()
		if len(events) == 0 && exit != nil {
			return s.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: exit}})
		}
		for _, ev := range events {
			if err := s.Send(ev); err != nil {
				return err
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WriteInput implements the service.
func (g *Guest) WriteInput(_ context.Context, r *connect.Request[guestv1.WriteInputRequest]) (*connect.Response[guestv1.WriteInputResponse], error) {
	p := g.Process(r.Msg.GetId())
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such command"))
	}
	p.mu.Lock()
	acked := p.acked
	p.mu.Unlock()
	if r.Msg.GetOffset() > acked {
		return nil, connect.NewError(connect.CodeOutOfRange, errors.New("a gap"))
	}
	if data := r.Msg.GetData(); acked-r.Msg.GetOffset() < uint64(len(data)) {
		n, err := p.input.Write(data[acked-r.Msg.GetOffset():])
		acked += uint64(n)
		p.mu.Lock()
		p.acked = acked
		p.mu.Unlock()
		if err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	if r.Msg.GetEof() {
		_ = p.input.Close()
	}
	return connect.NewResponse(&guestv1.WriteInputResponse{Acked: acked}), nil
}

// Resize implements the service.
func (g *Guest) Resize(_ context.Context, r *connect.Request[guestv1.ResizeRequest]) (*connect.Response[guestv1.ResizeResponse], error) {
	p := g.Process(r.Msg.GetId())
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such command"))
	}
	p.Resized <- r.Msg.GetSize()
	return connect.NewResponse(&guestv1.ResizeResponse{}), nil
}

// Signal implements the service.
func (g *Guest) Signal(_ context.Context, r *connect.Request[guestv1.SignalRequest]) (*connect.Response[guestv1.SignalResponse], error) {
	p := g.Process(r.Msg.GetId())
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such command"))
	}
	p.Signals <- r.Msg.GetSignal()
	return connect.NewResponse(&guestv1.SignalResponse{}), nil
}

// oneConn is a listener with one connection to give.
type oneConn struct {
	c    net.Conn
	once sync.Once
	fin  sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.c })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) end()           { l.fin.Do(func() { close(l.done) }) }
func (l *oneConn) Close() error   { l.end(); return nil }
func (l *oneConn) Addr() net.Addr { return l.c.LocalAddr() }

// actions is the agent's port with its action protocol.
func (g *Guest) actions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			next.ServeHTTP(w, r)
			return
		}
		if g.Actions == nil || r.Host != guest.ActionsTarget {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		if line, err := both.ReadBytes('\n'); err == nil {
			_, _ = io.WriteString(c, g.Actions(line)) // nobody is left to tell
		}
	})
}
