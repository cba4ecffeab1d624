package session_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// guests are the agents of all boxes of a fake wall. They run no programs: a
// command's text is in a language of their own.
//
//	echo X | sleep N | exit N | flood N | oom | die | dieoom | touch | look | env K
type guests struct {
	guestv1connect.UnimplementedExecServiceHandler
	fake *sandboxtest.Fake

	mu      sync.Mutex
	ran     []string            // texts that were begun
	killed  []string            // texts that were killed from outside
	touched map[string]bool     // boxes with something in their workspace
	cmds    map[string]*running // by ID
	argvs   [][]string
	conns   int
	does    func(text string) // what a command does besides; nil: nothing
}

type running struct {
	box, text, tag string
	kill           chan struct{}
	once           sync.Once
	exit           *guestv1.Exit
}

func newGuests(f *sandboxtest.Fake) *guests {
	g := &guests{fake: f, touched: map[string]bool{}, cmds: map[string]*running{}}
	f.SetServer(g.serve)
	return g
}

type boxKey struct{}

// serve answers one connection.
func (g *guests) serve(id string, _ int, c net.Conn) {
	g.mu.Lock()
	g.conns++
	g.mu.Unlock()
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewExecServiceHandler(g))
	closed := make(chan struct{})
	ended, end := context.WithCancel(context.Background())
	defer end()
	srv := &http.Server{
		Handler:     mux,
		BaseContext: func(net.Listener) context.Context { return context.WithValue(context.Background(), boxKey{}, id) },
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(closed)
			}
		},
	}
	go func() { // what dies answers no more
		if _, err := g.fake.Wait(ended, id); err == nil {
			_ = c.Close()
		}
	}()
	_ = srv.Serve(&once{c: c})
	<-closed
	_ = srv.Close()
}

// once is a listener with one connection.
type once struct{ c net.Conn }

func (o *once) Accept() (net.Conn, error) {
	if o.c == nil {
		return nil, net.ErrClosed
	}
	c := o.c
	o.c = nil
	return c, nil
}
func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.UnixAddr{} }

// scriptText is the text that agent.Script was given.
func scriptText(argv []string) (string, bool) {
	if len(argv) != 4 || argv[1] != "-l" {
		return "", false
	}
	parts := strings.SplitN(argv[3], " || exit; ", 3)
	return parts[len(parts)-1], len(parts) == 3
}

func (g *guests) begin(ctx context.Context, req *guestv1.StartRequest) *running {
	box, _ := ctx.Value(boxKey{}).(string)
	argv := req.GetCommand().GetArgv()
	r := &running{box: box, text: strings.Join(argv, " "), tag: req.GetCommand().GetTag(), kill: make(chan struct{})}
	text, ran := scriptText(argv)
	if ran {
		r.text = text
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.argvs = append(g.argvs, argv)
	g.cmds[req.GetId()] = r
	if ran {
		g.ran = append(g.ran, text)
	}
	return r
}

func (g *guests) Start(ctx context.Context, req *connect.Request[guestv1.StartRequest], out *connect.ServerStream[guestv1.Event]) error {
	r := g.begin(ctx, req.Msg)
	if err := out.Send(&guestv1.Event{Event: &guestv1.Event_Started_{Started: &guestv1.Event_Started{Pid: 1}}}); err != nil {
		return err
	}
	if req.Msg.GetDetached() {
		return nil
	}
	var offset uint64
	write := func(b []byte) {
		_ = out.Send(&guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{
			Stream: guestv1.Stream_STREAM_STDOUT, Offset: offset, Data: b,
		}}})
		offset += uint64(len(b))
	}
	exit := g.run(ctx, r, req.Msg.GetCommand(), write)
	if exit == nil {
		return connect.NewError(connect.CodeUnavailable, context.Canceled)
	}
	return out.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: exit}})
}

func exited(code int) *guestv1.Exit {
	return &guestv1.Exit{Code: int32(code), Reason: guestv1.Reason_REASON_EXITED}
}

// run is a command's life; nil where its box dies.
func (g *guests) run(ctx context.Context, r *running, cmd *guestv1.Command, write func([]byte)) *guestv1.Exit {
	if strings.Contains(r.text, "/workspace/*") { // the look for changes
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.touched[r.box] {
			return exited(0)
		}
		return exited(3)
	}
	if g.does != nil {
		g.does(r.text)
	}
	word, arg, _ := strings.Cut(r.text, " ")
	n, _ := strconv.Atoi(arg)
	switch word {
	case "echo":
		write([]byte(arg + "\n"))
	case "env":
		write([]byte(cmd.GetEnv()[arg]))
	case "exit":
		return exited(n)
	case "flood":
		for ; n > 0; n -= 64 << 10 {
			write(bytes.Repeat([]byte("x"), min(n, 64<<10)))
		}
	case "touch":
		g.mu.Lock()
		g.touched[r.box] = true
		g.mu.Unlock()
	case "look":
		if !g.hasFile(r.box) {
			return exited(1)
		}
	case "oom":
		return &guestv1.Exit{Code: 137, Reason: guestv1.Reason_REASON_OUT_OF_MEMORY, Limits: []string{"pids", "made-up"}}
	case "die":
		g.fake.Die(r.box, sandbox.EndCrashed)
		return nil
	case "dieoom":
		g.fake.Die(r.box, sandbox.EndOutOfMemory)
		return nil
	case "sleep":
		write([]byte("before\n"))
		return g.sleep(ctx, r, time.Duration(n)*time.Second, time.Duration(cmd.GetTimeoutMs())*time.Millisecond)
	}
	return exited(0)
}

// hasFile reports whether something was put into the workspace of a box.
func (g *guests) hasFile(box string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.touched[box]
}

func (g *guests) sleep(ctx context.Context, r *running, d, limit time.Duration) *guestv1.Exit {
	if limit == 0 {
		limit = 1 << 40
	}
	select {
	case <-time.After(min(d, limit)):
		if limit < d {
			return &guestv1.Exit{Code: 137, Reason: guestv1.Reason_REASON_TIMED_OUT, Signal: 9}
		}
		return exited(0)
	case <-r.kill:
		return &guestv1.Exit{Code: 137, Reason: guestv1.Reason_REASON_KILLED, Signal: 9}
	case <-ctx.Done():
		select { // a kill follows, else it is an orphan
		case <-r.kill:
		case <-time.After(time.Minute):
		}
		return nil
	}
}

func (g *guests) Signal(_ context.Context, req *connect.Request[guestv1.SignalRequest]) (*connect.Response[guestv1.SignalResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.cmds[req.Msg.GetId()]
	if r == nil {
		return nil, connect.NewError(connect.CodeNotFound, context.Canceled)
	}
	r.once.Do(func() {
		close(r.kill)
		g.killed = append(g.killed, r.text)
		r.exit = &guestv1.Exit{Code: 143, Reason: guestv1.Reason_REASON_KILLED, Signal: 15}
	})
	return connect.NewResponse(&guestv1.SignalResponse{}), nil
}

func (g *guests) Read(ctx context.Context, req *connect.Request[guestv1.ReadRequest]) (*connect.Response[guestv1.ReadResponse], error) {
	g.mu.Lock()
	r := g.cmds[req.Msg.GetId()]
	g.mu.Unlock()
	if r == nil {
		return nil, connect.NewError(connect.CodeNotFound, context.Canceled)
	}
	select {
	case <-r.kill:
	case <-ctx.Done():
	case <-time.After(time.Duration(req.Msg.GetWaitMs()) * time.Millisecond):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return connect.NewResponse(&guestv1.ReadResponse{Offset: req.Msg.GetOffset(), Ended: r.exit != nil, Exit: r.exit}), nil
}

func (g *guests) Get(_ context.Context, req *connect.Request[guestv1.GetRequest]) (*connect.Response[guestv1.GetResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.cmds[req.Msg.GetId()]
	if r == nil {
		return nil, connect.NewError(connect.CodeNotFound, context.Canceled)
	}
	return connect.NewResponse(&guestv1.GetResponse{Process: &guestv1.Process{Id: req.Msg.GetId(), Exit: r.exit}}), nil
}

func (g *guests) WriteInput(_ context.Context, req *connect.Request[guestv1.WriteInputRequest]) (*connect.Response[guestv1.WriteInputResponse], error) {
	return connect.NewResponse(&guestv1.WriteInputResponse{Acked: req.Msg.GetOffset() + uint64(len(req.Msg.GetData()))}), nil
}

func (g *guests) List(ctx context.Context, _ *connect.Request[guestv1.ListRequest]) (*connect.Response[guestv1.ListResponse], error) {
	box, _ := ctx.Value(boxKey{}).(string)
	g.mu.Lock()
	defer g.mu.Unlock()
	res := &guestv1.ListResponse{}
	for id, r := range g.cmds {
		if r.box == box && r.exit == nil {
			res.Processes = append(res.Processes, &guestv1.Process{Id: id, Command: &guestv1.Command{Tag: r.tag}})
		}
	}
	return connect.NewResponse(res), nil
}

// begun lists the commands that were begun, in order.
func (g *guests) begun() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

func (g *guests) killedOnes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.killed)
}
