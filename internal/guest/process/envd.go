package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/process"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

const (
	envdKeepalive = 50 * time.Second // where a caller names no interval
	// envdMemory is how long an ended command can still be connected to. pids
	// come again, so it is short.
	envdMemory = 30 * time.Second
	envdBy     = "api" // who kills, as far as envd's protocol tells
)

// envdService is the engine as E2B's SDKs expect envd's Process service. It
// does as envd does, but for two things: SIGKILL ends all that a command
// started, and a command's end is told when its main process ends, not when
// its outputs are closed.
type envdService struct{ engine *Engine }

var _ processconnect.ProcessHandler = (*envdService)(nil)

// newEnvdService returns a service for commands of e.
func newEnvdService(e *Engine) *envdService { return &envdService{e} }

// List tells which commands run, and of those that this service started the
// environment that was asked for too. That of others may be secret.
func (s *envdService) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	res := &process.ListResponse{}
	for _, c := range s.engine.List() {
		if _, ended := c.Exit(); ended {
			continue
		}
		info := &process.ProcessInfo{
			Pid:    uint32(c.PID()),
			Config: &process.ProcessConfig{Cmd: c.spec.Argv[0], Args: c.spec.Argv[1:]},
		}
		if c.anonymous() {
			info.Config.Envs = c.spec.Env
		}
		if c.spec.Cwd != "" {
			info.Config.Cwd = &c.spec.Cwd
		}
		if c.spec.Tag != "" {
			info.Tag = &c.spec.Tag
		}
		res.Processes = append(res.Processes, info)
	}
	return connect.NewResponse(res), nil
}

// Start runs a command and streams it. The command goes on when the stream
// breaks; it ends when the time has passed that the request's own timeout
// header names.
func (s *envdService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	spec, err := envdSpec(req)
	if err != nil {
		return err
	}
	c, f, err := s.engine.StartFollowed(anonymousID(), spec)
	if errors.Is(err, ErrUser) {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	if err != nil {
		return coded(err)
	}
	defer f.Close()
	to := envdSink{c: c, send: func(ev *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: ev})
	}}
	return s.stream(ctx, f, req.Header(), to)
}

func envdSpec(req *connect.Request[process.StartRequest]) (spec Spec, err error) {
	p := req.Msg.GetProcess()
	spec = Spec{
		Argv: append([]string{p.GetCmd()}, p.GetArgs()...),
		Env:  p.GetEnvs(), Cwd: p.GetCwd(), Tag: req.Msg.GetTag(),
		Stdin: req.Msg.Stdin == nil || req.Msg.GetStdin(),
	}
	if spec.User, _, err = account.FromHeader(req.Header()); err != nil {
		return spec, connect.NewError(connect.CodeUnauthenticated, err)
	}
	if spec.Timeout, err = timeout(req.Header()); err != nil {
		return spec, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if pty := req.Msg.GetPty(); pty != nil {
		size, err := sizeOf(pty.GetSize().GetCols(), pty.GetSize().GetRows())
		if err != nil {
			return spec, coded(err)
		}
		spec.Terminal = &size
	}
	return spec, nil
}

func timeout(h http.Header) (time.Duration, error) {
	text := h.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("connect-timeout-ms: %q is no number of milliseconds", text)
	}
	return millis(ms), nil
}

// Connect follows a command from now on.
func (s *envdService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	c, err := s.find(req.Msg.GetProcess(), envdMemory)
	if err != nil {
		return err
	}
	f := c.FollowEnd()
	defer f.Close()
	to := envdSink{c: c, send: func(ev *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: ev})
	}}
	return s.stream(ctx, f, req.Header(), to)
}

func (s *envdService) stream(ctx context.Context, f *Follower, h http.Header, to envdSink) error {
	c := to.c
	if exit, ended := c.Exit(); ended && exit.Reason == NotStarted {
		if exit.dir || exit.Code != jail.CodeNotFound && exit.Code != jail.CodeNotExecutable {
			return connect.NewError(connect.CodeInvalidArgument, errors.New(exit.Error))
		}
	}
	start := &process.ProcessEvent_StartEvent{Pid: uint32(c.PID())}
	if err := to.send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: start}}); err != nil {
		return err
	}
	return coded(c.stream(ctx, f, keepaliveOf(h), to))
}

func keepaliveOf(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > 24*60*60 {
		return envdKeepalive
	}
	return time.Duration(seconds) * time.Second
}

// envdSink sends events as envd does.
type envdSink struct {
	c    *Command
	send func(*process.ProcessEvent) error
}

func (s envdSink) output(ev journal.Event) error {
	if ev.Data == nil {
		return s.lost(ev)
	}
	d := &process.ProcessEvent_DataEvent{}
	switch {
	case s.c.term != nil:
		d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: ev.Data}
	case ev.Stream == journal.Stderr:
		d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: ev.Data}
	default:
		d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: ev.Data}
	}
	return s.send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}})
}

// lost tells a reader that was left behind what it missed. The dialect has no word for it: on a
// terminal it is a line among the output, whose programs draw themselves anew; elsewhere
// the stream ends, before its reader takes what follows for the whole.
func (s envdSink) lost(ev journal.Event) error {
	missed := ev.To - ev.Offset
	if s.c.term != nil {
		line := fmt.Sprintf("\r\n[carboy: %d bytes of output were not read in time, and are lost to this reader]\r\n", missed)
		return s.output(journal.Event{Stream: ev.Stream, Data: []byte(line)})
	}
	name := "stdout"
	if ev.Stream == journal.Stderr {
		name = "stderr"
	}
	return connect.NewError(connect.CodeDataLoss, fmt.Errorf(
		"%d bytes of %s were not read in time, and are lost to this reader; the process goes on: connect again for what it writes from now on", missed, name))
}

func (s envdSink) keepalive() error {
	return s.send(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}})
}

func (s envdSink) exit(e Exit) error {
	if e.Error != "" { // envd's shell would have said it there
		if err := s.output(journal.Event{Stream: journal.Stderr, Data: []byte(e.Error + "\n")}); err != nil {
			return err
		}
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(e.Code), Exited: e.Signal == 0, Status: e.String()}
	if e.Signal != 0 {
		end.ExitCode = -1
	}
	if e.Code != 0 {
		end.Error = &end.Status
	}
	return s.send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

// find returns the command that a selector means: a running one, or one that
// ended at most memory ago.
func (s *envdService) find(sel *process.ProcessSelector, memory time.Duration) (*Command, error) {
	var match func(*Command) bool
	var what string
	switch by := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if c, ok := s.engine.Running(int(by.Pid)); ok {
			return c, nil
		}
		what = fmt.Sprintf("pid %d", by.Pid)
		match = func(c *Command) bool { return by.Pid != 0 && uint32(c.PID()) == by.Pid }
	case *process.ProcessSelector_Tag:
		what = fmt.Sprintf("tag %.128q", by.Tag)
		match = func(c *Command) bool { return by.Tag != "" && c.spec.Tag == by.Tag }
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("name a process by its pid or tag"))
	}
	var best *Command
	for _, c := range s.engine.List() {
		exit, ended := c.Exit()
		if !match(c) || ended && time.Since(c.started)-exit.Duration > memory {
			continue
		}
		if best == nil || c.started.After(best.started) {
			best = c
		}
	}
	if best == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with %s not found", what))
	}
	return best, nil
}

// SendInput writes to a command's standard input or terminal.
func (s *envdService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	c, err := s.find(req.Msg.GetProcess(), 0)
	if err == nil {
		err = c.envdInput(ctx, req.Msg.GetInput())
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// StreamInput writes a stream of messages to one command.
func (s *envdService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var c *Command
	for stream.Receive() {
		var err error
		switch ev := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			c, err = s.find(ev.Start.GetProcess(), 0)
		case *process.StreamInputRequest_Data:
			if c == nil {
				err = connect.NewError(connect.CodeInvalidArgument, errors.New("the first message must name the process"))
				break
			}
			err = c.envdInput(ctx, ev.Data.GetInput())
		case *process.StreamInputRequest_Keepalive:
		default:
			err = connect.NewError(connect.CodeUnimplemented, fmt.Errorf("unknown event %T", ev))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

func (c *Command) envdInput(ctx context.Context, in *process.ProcessInput) error {
	var data []byte
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Pty:
		if c.term == nil {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("the process has no terminal: send stdin"))
		}
		data = in.Pty
	case *process.ProcessInput_Stdin:
		if c.term != nil {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("the process has a terminal: send pty"))
		}
		data = in.Stdin
	default:
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("unknown input %T", in))
	}
	_, err := c.Input(ctx, Append, data, false)
	return coded(err)
}

// CloseStdin ends a command's standard input.
func (s *envdService) CloseStdin(ctx context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	c, err := s.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	if c.term != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal's input is ended by Ctrl+D (0x04)"))
	}
	if _, err := c.Input(ctx, Append, nil, true); err != nil && !errors.Is(err, ErrInputClosed) {
		return nil, coded(err)
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

// SendSignal ends a command: SIGTERM asks its process group, SIGKILL takes
// everything that it started.
func (s *envdService) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	c, err := s.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGTERM:
		err = c.Signal(unix.SIGTERM, false, envdBy)
	case process.Signal_SIGNAL_SIGKILL:
		err = c.Signal(unix.SIGKILL, true, envdBy)
	default:
		err = connect.NewError(connect.CodeUnimplemented, fmt.Errorf("unknown signal %v", req.Msg.GetSignal()))
	}
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// Update changes the size of a command's terminal.
func (s *envdService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	c, err := s.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		js, err := sizeOf(size.GetCols(), size.GetRows())
		if err == nil {
			err = c.Resize(js)
		}
		if err != nil {
			return nil, coded(err)
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}
