package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// keepaliveEvery is how long a stream of ours may be silent.
const keepaliveEvery = 20 * time.Second

// execService is the engine as carboy.guest.v1 has it.
type execService struct{ engine *Engine }

var _ guestv1connect.ExecServiceHandler = (*execService)(nil)

// newExecService returns a service for commands of e.
func newExecService(e *Engine) *execService { return &execService{e} }

// Start starts a command, or finds it again, and streams it from the
// beginning.
func (s *execService) Start(ctx context.Context, req *connect.Request[guestv1.StartRequest], stream *connect.ServerStream[guestv1.Event]) error {
	spec, err := specOf(req.Msg.GetCommand())
	if err != nil {
		return coded(err)
	}
	c, err := s.engine.Start(req.Msg.GetId(), spec)
	if err != nil {
		return coded(err)
	}
	if req.Msg.GetDetached() {
		return begun(c, stream)
	}
	return s.follow(ctx, c, [2]int64{}, stream)
}

// Follow streams a command from the given offsets on.
func (s *execService) Follow(ctx context.Context, req *connect.Request[guestv1.FollowRequest], stream *connect.ServerStream[guestv1.Event]) error {
	c, err := s.engine.Get(req.Msg.GetId())
	if err != nil {
		return coded(err)
	}
	from := [2]int64{
		journal.Stdout: offset(req.Msg.GetStdoutOffset()),
		journal.Stderr: offset(req.Msg.GetStderrOffset()),
	}
	return s.follow(ctx, c, from, stream)
}

func (s *execService) follow(ctx context.Context, c *Command, from [2]int64, stream *connect.ServerStream[guestv1.Event]) error {
	f := c.Follow(from)
	defer f.Close()
	if c.proc != nil {
		err := stream.Send(&guestv1.Event{Event: &guestv1.Event_Started_{
			Started: &guestv1.Event_Started{Pid: uint32(c.PID())},
		}})
		if err != nil {
			return err
		}
	}
	return coded(c.stream(ctx, f, keepaliveEvery, execSink{stream}))
}

// execSink sends events as execService has them.
type execSink struct {
	*connect.ServerStream[guestv1.Event]
}

func (s execSink) output(ev journal.Event) error {
	name := guestv1.Stream_STREAM_STDOUT
	if ev.Stream == journal.Stderr {
		name = guestv1.Stream_STREAM_STDERR
	}
	if ev.Data == nil {
		return s.Send(&guestv1.Event{Event: &guestv1.Event_Dropped_{Dropped: &guestv1.Event_Dropped{
			Stream: name, From: uint64(ev.Offset), To: uint64(ev.To),
		}}})
	}
	return s.Send(&guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{
		Stream: name, Offset: uint64(ev.Offset), Data: ev.Data,
	}}})
}

func (s execSink) keepalive() error {
	return s.Send(&guestv1.Event{Event: &guestv1.Event_Keepalive{Keepalive: &guestv1.Event_KeepAlive{}}})
}

func (s execSink) exit(e Exit) error {
	return s.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: exitMessage(e)}})
}

// WriteInput appends to a command's input.
func (s *execService) WriteInput(ctx context.Context, req *connect.Request[guestv1.WriteInputRequest]) (*connect.Response[guestv1.WriteInputResponse], error) {
	c, err := s.engine.Get(req.Msg.GetId())
	if err != nil {
		return nil, coded(err)
	}
	at := offset(req.Msg.GetOffset())
	if req.Msg.GetOffset() == math.MaxUint64 {
		at = Append
	}
	acked, err := c.Input(ctx, at, req.Msg.GetData(), req.Msg.GetEof())
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&guestv1.WriteInputResponse{Acked: uint64(acked)}), nil
}

// Resize changes a terminal's size.
func (s *execService) Resize(_ context.Context, req *connect.Request[guestv1.ResizeRequest]) (*connect.Response[guestv1.ResizeResponse], error) {
	c, err := s.engine.Get(req.Msg.GetId())
	if err != nil {
		return nil, coded(err)
	}
	size, err := sizeOf(req.Msg.GetSize().GetCols(), req.Msg.GetSize().GetRows())
	if err == nil {
		err = c.Resize(size)
	}
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&guestv1.ResizeResponse{}), nil
}

// Signal sends a signal to a command, or to it and all that it started.
func (s *execService) Signal(_ context.Context, req *connect.Request[guestv1.SignalRequest]) (*connect.Response[guestv1.SignalResponse], error) {
	c, err := s.engine.Get(req.Msg.GetId())
	if err == nil {
		err = c.Signal(syscall.Signal(req.Msg.GetSignal()), req.Msg.GetAll(), req.Msg.GetBy())
	}
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&guestv1.SignalResponse{}), nil
}

// Get tells how a command is.
func (s *execService) Get(_ context.Context, req *connect.Request[guestv1.GetRequest]) (*connect.Response[guestv1.GetResponse], error) {
	c, err := s.engine.Get(req.Msg.GetId())
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&guestv1.GetResponse{Process: c.message()}), nil
}

// List tells how all commands are that are remembered.
func (s *execService) List(context.Context, *connect.Request[guestv1.ListRequest]) (*connect.Response[guestv1.ListResponse], error) {
	res := &guestv1.ListResponse{}
	for _, c := range s.engine.List() {
		res.Processes = append(res.Processes, c.message())
	}
	return connect.NewResponse(res), nil
}

// message describes a command without its environment, which may be secret.
func (c *Command) message() *guestv1.Process {
	m := &guestv1.Process{
		Id:  c.id,
		Pid: uint32(c.PID()),
		Command: &guestv1.Command{
			Argv: c.spec.Argv, Cwd: c.spec.Cwd, User: c.spec.User, Stdin: c.spec.Stdin, Tag: c.spec.Tag,
			TimeoutMs:     uint64(c.spec.Timeout.Milliseconds()),
			OrphanGraceMs: uint64(c.spec.OrphanGrace.Milliseconds()),
			Labels:        c.spec.Labels,
			MemoryBytes:   uint64(c.spec.Memory),
		},
		StartedUnixMs: uint64(c.started.UnixMilli()),
		StdoutBytes:   uint64(c.out.Bytes(journal.Stdout)),
		StderrBytes:   uint64(c.out.Bytes(journal.Stderr)),
		StdinAcked:    uint64(c.input.bytes()),
	}
	if c.spec.Terminal != nil {
		t, modes := c.terminalState()
		m.TerminalModes = modes
		m.Command.Terminal = &guestv1.Terminal{Cols: uint32(t.Cols), Rows: uint32(t.Rows)}
	}
	if exit, ended := c.Exit(); ended {
		m.Exit = exitMessage(exit)
	}
	return m
}

var reasons = map[Reason]guestv1.Reason{
	Exited:      guestv1.Reason_REASON_EXITED,
	Signalled:   guestv1.Reason_REASON_SIGNALLED,
	TimedOut:    guestv1.Reason_REASON_TIMED_OUT,
	OutOfMemory: guestv1.Reason_REASON_OUT_OF_MEMORY,
	Killed:      guestv1.Reason_REASON_KILLED,
	NotStarted:  guestv1.Reason_REASON_NOT_STARTED,
}

func exitMessage(e Exit) *guestv1.Exit {
	return &guestv1.Exit{
		Code: int32(e.Code), Reason: reasons[e.Reason], Signal: int32(e.Signal), KilledBy: e.KilledBy,
		Error: e.Error, Limits: e.Limits, DurationMs: uint64(e.Duration.Milliseconds()),
	}
}

func specOf(m *guestv1.Command) (Spec, error) {
	if m == nil {
		return Spec{}, fmt.Errorf("%w: none was given", ErrInvalid)
	}
	s := Spec{
		Argv: m.GetArgv(), Env: m.GetEnv(), Cwd: m.GetCwd(), User: m.GetUser(), Stdin: m.GetStdin(),
		Timeout: millis(m.GetTimeoutMs()), OrphanGrace: millis(m.GetOrphanGraceMs()),
		Tag: m.GetTag(), Labels: m.GetLabels(), Memory: offset(m.GetMemoryBytes()),
	}
	if t := m.GetTerminal(); t != nil {
		size, err := sizeOf(t.GetCols(), t.GetRows())
		if err != nil {
			return Spec{}, err
		}
		s.Terminal = &size
	}
	return s, nil
}

func sizeOf(cols, rows uint32) (jail.Size, error) {
	if cols > math.MaxUint16 || rows > math.MaxUint16 {
		return jail.Size{}, fmt.Errorf("%w: a terminal has at most %d columns and rows", ErrInvalid, math.MaxUint16)
	}
	return jail.Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

// millis is a duration; one that is too long to be expressed is the longest.
func millis(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

func offset(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// codes are what the engine's errors are on the wire.
var codes = []struct {
	err  error
	code connect.Code
}{
	{ErrInvalid, connect.CodeInvalidArgument},
	{ErrUser, connect.CodeInvalidArgument},
	{ErrDenied, connect.CodePermissionDenied},
	{ErrNotFound, connect.CodeNotFound},
	{ErrEnded, connect.CodeFailedPrecondition},
	{ErrInputClosed, connect.CodeFailedPrecondition},
	{ErrGap, connect.CodeOutOfRange},
	{ErrClosed, connect.CodeUnavailable},
	{jail.ErrRestarting, connect.CodeUnavailable},
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
}

func coded(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return connect.NewError(c.code, err)
		}
	}
	return connect.NewError(connect.CodeInternal, err)
}

// maxMessage bounds one message of a caller, in bytes.
const maxMessage = 8 << 20

// Register adds the engine's two services to mux.
func (e *Engine) Register(mux *http.ServeMux) {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		// The channel is a socket on one machine: compressing costs more
		// than it saves. Requests may still be compressed.
		connect.WithCompressMinBytes(math.MaxInt),
	}
	mux.Handle(processconnect.NewProcessHandler(newEnvdService(e), opts...))
	mux.Handle(guestv1connect.NewExecServiceHandler(newExecService(e), opts...))
}
