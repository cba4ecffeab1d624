package cli_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeGuest runs commands as processes of the host's in one directory. The
// names in fakeEnds are commands that end as no process here could.
type fakeGuest struct {
	guestv1connect.UnimplementedExecServiceHandler
	dir string
	env map[string]string

	mu    sync.Mutex
	procs map[string]*fakeProc

	started, signalled chan struct{} // one for each stalling command, and for each signal to one
}

// fakeProc is one command and its journal.
type fakeProc struct {
	command *guestv1.Command
	cmd     *exec.Cmd
	tty     *os.File
	stdin   io.WriteCloser
	pid     uint32

	mu     sync.Mutex
	wake   chan struct{}
	out    [2][]byte
	acked  uint64
	killer string
	late   bool
	exit   *guestv1.Exit
}

var fakeEnds = map[string]*guestv1.Exit{
	"fake-oom":    {Code: 137, Reason: guestv1.Reason_REASON_OUT_OF_MEMORY, Signal: 9},
	"fake-killed": {Code: 137, Reason: guestv1.Reason_REASON_KILLED, KilledBy: "sandbox", Error: "the sandbox was \x1b[1mremoved"},
	"fake-pids":   {Code: 3, Reason: guestv1.Reason_REASON_EXITED, Limits: []string{"pids"}},
	"fake-disk":   {Code: 4, Reason: guestv1.Reason_REASON_EXITED, Limits: []string{"disk", "inodes"}},
	"fake-noexec": {Code: 126, Reason: guestv1.Reason_REASON_NOT_STARTED, Error: "fake-noexec: permission denied"},
	"fake-broken": {Code: -1, Reason: guestv1.Reason_REASON_NOT_STARTED, Error: "no such user"},
}

func newFakeGuest(dir string, env map[string]string) *fakeGuest {
	return &fakeGuest{dir: dir, env: env, procs: map[string]*fakeProc{}, started: make(chan struct{}, 16), signalled: make(chan struct{}, 16)}
}

func (g *fakeGuest) killAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.procs {
		p.kill("sandbox")
	}
}

func (p *fakeProc) kill(by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.exit == nil {
		p.killer = by
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

func (p *fakeProc) write(stream int, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[stream] = append(p.out[stream], b...)
	p.changedLocked()
}

func (p *fakeProc) changedLocked() {
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *fakeProc) end(e *guestv1.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = e
	p.changedLocked()
}

// Start implements the service.
func (g *fakeGuest) Start(ctx context.Context, r *connect.Request[guestv1.StartRequest], s *connect.ServerStream[guestv1.Event]) error {
	if notice := g.env["FAKE_NOTICE"]; notice != "" {
		s.ResponseHeader().Set(api.HeaderNotice, notice)
	}
	g.mu.Lock()
	p := g.procs[r.Msg.GetId()]
	if p == nil {
		p = &fakeProc{command: r.Msg.GetCommand(), wake: make(chan struct{})}
		g.procs[r.Msg.GetId()] = p
		g.launch(p)
	}
	g.mu.Unlock()
	return g.tell(ctx, p, &guestv1.FollowRequest{}, s)
}

func (g *fakeGuest) launch(p *fakeProc) {
	argv := p.command.GetArgv()
	if e := fakeEnds[argv[0]]; e != nil {
		p.exit = e
		return
	}
	if p.stalls() {
		return
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Err != nil {
		p.exit = &guestv1.Exit{Code: 127, Reason: guestv1.Reason_REASON_NOT_STARTED, Error: argv[0] + ": not found"}
		return
	}
	cmd.Dir = filepath.Join(g.dir, p.command.GetCwd())
	if p.command.GetCwd() == "/workspace" {
		_ = os.Mkdir(cmd.Dir, 0o755) // where it is missing, the command can't be started
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.dir, "AS_USER=" + p.command.GetUser()}
	for _, env := range []map[string]string{g.env, p.command.GetEnv()} {
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	if err := p.start(cmd); err != nil {
		p.exit = &guestv1.Exit{Code: 126, Reason: guestv1.Reason_REASON_NOT_STARTED, Error: err.Error()}
	}
}

func (p *fakeProc) start(cmd *exec.Cmd) error {
	p.cmd = cmd
	var pumps sync.WaitGroup
	if size := p.command.GetTerminal(); size != nil {
		tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())})
		if err != nil {
			return err
		}
		p.tty, p.stdin = tty, tty
		pumps.Go(func() { p.pump(0, tty) })
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if p.command.GetStdin() {
			p.stdin, _ = cmd.StdinPipe()
		}
		out, _ := cmd.StdoutPipe()
		errs, _ := cmd.StderrPipe()
		if err := cmd.Start(); err != nil {
			return err
		}
		pumps.Go(func() { p.pump(0, out) })
		pumps.Go(func() { p.pump(1, errs) })
	}
	p.pid = uint32(cmd.Process.Pid)
	if ms := p.command.GetTimeoutMs(); ms > 0 {
		time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
			p.mu.Lock()
			p.late = p.exit == nil
			p.mu.Unlock()
			p.kill("timeout")
		})
	}
	go func() {
		pumps.Wait()
		err := cmd.Wait()
		p.end(p.exitOf(err))
	}()
	return nil
}

func (p *fakeProc) exitOf(err error) *guestv1.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED}
	ee, _ := errors.AsType[*exec.ExitError](err)
	if ee == nil {
		return e
	}
	e.Code = int32(ee.ExitCode())
	if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Code, e.Signal, e.Reason = 128+int32(ws.Signal()), int32(ws.Signal()), guestv1.Reason_REASON_SIGNALLED
	}
	switch {
	case p.late:
		e.Reason = guestv1.Reason_REASON_TIMED_OUT
	case p.killer != "":
		e.Reason, e.KilledBy = guestv1.Reason_REASON_KILLED, p.killer
	}
	return e
}

func (p *fakeProc) pump(stream int, r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			p.write(stream, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Follow implements the service.
func (g *fakeGuest) Follow(ctx context.Context, r *connect.Request[guestv1.FollowRequest], s *connect.ServerStream[guestv1.Event]) error {
	p, err := g.proc(r.Msg.GetId())
	if err != nil {
		return err
	}
	return g.tell(ctx, p, r.Msg, s)
}

func (p *fakeProc) follow(ctx context.Context, r *guestv1.FollowRequest, s *connect.ServerStream[guestv1.Event]) error {
	at := [2]uint64{r.GetStdoutOffset(), r.GetStderrOffset()}
	p.mu.Lock()
	failed := p.exit.GetReason() == guestv1.Reason_REASON_NOT_STARTED
	p.mu.Unlock()
	started := &guestv1.Event{Event: &guestv1.Event_Started_{Started: &guestv1.Event_Started{Pid: p.pid}}}
	if !failed {
		if err := s.Send(started); err != nil {
			return err
		}
	}
	for {
		p.mu.Lock()
		wake, exit := p.wake, p.exit
		var events []*guestv1.Event
		for i := range at {
			if fresh := slices.Clone(p.out[i][at[i]:]); len(fresh) > 0 {
				events = append(events, &guestv1.Event{Event: &guestv1.Event_Output_{Output: &guestv1.Event_Output{
					Stream: guestv1.Stream(i + 1), Offset: at[i], Data: fresh,
				}}})
				at[i] += uint64(len(fresh))
			}
		}
		p.mu.Unlock()
		for _, ev := range events {
			if err := s.Send(ev); err != nil {
				return err
			}
		}
		switch {
		case len(events) > 0:
			continue
		case exit != nil:
			return s.Send(&guestv1.Event{Event: &guestv1.Event_Exit{Exit: exit}})
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *fakeGuest) proc(id string) (*fakeProc, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.procs[id]; p != nil {
		return p, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("command %s: not found", id))
}

// WriteInput implements the service.
func (g *fakeGuest) WriteInput(_ context.Context, r *connect.Request[guestv1.WriteInputRequest]) (*connect.Response[guestv1.WriteInputResponse], error) {
	p, err := g.proc(r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	if p.stdin == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("no stdin"))
	}
	if _, err := p.stdin.Write(r.Msg.GetData()); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	if r.Msg.GetEof() && p.tty == nil {
		_ = p.stdin.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked += uint64(len(r.Msg.GetData()))
	return connect.NewResponse(&guestv1.WriteInputResponse{Acked: p.acked}), nil
}

// Resize implements the service.
func (g *fakeGuest) Resize(_ context.Context, r *connect.Request[guestv1.ResizeRequest]) (*connect.Response[guestv1.ResizeResponse], error) {
	p, err := g.proc(r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	size := r.Msg.GetSize()
	err = pty.Setsize(p.tty, &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())})
	return connect.NewResponse(&guestv1.ResizeResponse{}), err
}

// Signal implements the service.
func (g *fakeGuest) Signal(ctx context.Context, r *connect.Request[guestv1.SignalRequest]) (*connect.Response[guestv1.SignalResponse], error) {
	p, err := g.proc(r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	if p.stalls() {
		g.signalled <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.Msg.GetAll() {
		p.kill(r.Msg.GetBy())
	} else {
		err = syscall.Kill(-p.cmd.Process.Pid, syscall.Signal(r.Msg.GetSignal()))
	}
	return connect.NewResponse(&guestv1.SignalResponse{}), err
}

// Get implements the service.
func (g *fakeGuest) Get(_ context.Context, r *connect.Request[guestv1.GetRequest]) (*connect.Response[guestv1.GetResponse], error) {
	p, err := g.proc(r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.GetResponse{Process: p.process(r.Msg.GetId())}), nil
}

func (p *fakeProc) process(id string) *guestv1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls() {
		return &guestv1.Process{Id: id, StdoutBytes: 1 << 60}
	}
	return &guestv1.Process{
		Id: id, Pid: p.pid, Command: p.command, Exit: p.exit,
		StdoutBytes: uint64(len(p.out[0])), StderrBytes: uint64(len(p.out[1])),
	}
}

// List implements the service.
func (g *fakeGuest) List(context.Context, *connect.Request[guestv1.ListRequest]) (*connect.Response[guestv1.ListResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list guestv1.ListResponse
	for id, p := range g.procs {
		list.Processes = append(list.Processes, p.process(id))
	}
	return connect.NewResponse(&list), nil
}

// archive is the guest's way of files: /workspace is the directory.
func (b *fakeBox) archive(w http.ResponseWriter, r *http.Request) {
	name := path.Clean(r.URL.Query().Get("path"))
	if rest, ok := strings.CutPrefix(name, "/workspace"); ok {
		name = "." + rest
	}
	name = filepath.Join(b.dir, name)
	if file := b.Labels["tar"]; file != "" && r.Method == http.MethodGet { // what a hostile guest would send
		http.ServeFile(w, r, file)
		return
	}
	var err error
	if r.Method == http.MethodGet {
		w.Header().Set("Trailer", "Carboy-Skipped, Carboy-Skipped-Count")
		err = sendTree(w, name)
		if b.Labels["skips"] != "" {
			w.Header().Set("Carboy-Skipped", `[{"name":"sock\u001b","reason":"socket"}]`)
			w.Header().Set("Carboy-Skipped-Count", "1")
		}
	} else if err = takeTree(r.Body, name); err == nil {
		_ = answer(w, map[string]any{"entries": 1, "bytes": 1, "skipped": []client.Skip{}})
	}
	if err != nil {
		code := http.StatusInternalServerError
		if errors.Is(err, fs.ErrNotExist) {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		_ = answer(w, map[string]any{"code": code, "message": err.Error()}) // as envd has it
	}
}

func sendTree(w io.Writer, name string) error {
	if _, err := os.Lstat(name); err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(name, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		link, _ := os.Readlink(p)
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(filepath.Dir(name), p)
		h.Name = rel
		if err := tw.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil {
			_, err = tw.Write(b)
		}
		return err
	})
	return errors.Join(err, tw.Close())
}

func takeTree(r io.Reader, dir string) error {
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return errors.Join(err, fs.ErrNotExist)
	}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, to)
		default:
			var b []byte
			if b, err = io.ReadAll(tr); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, fs.FileMode(h.Mode)))
			}
		}
		if err != nil {
			return err
		}
	}
}

func (d *fakeDaemon) toGuest(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	stopped := b.State == "stopped" && b.Ended == "stopped" // by its user
	d.mu.Unlock()
	if stopped {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is stopped", b.Name).WithHint("carboy start %s", b.Name)
	}
	w.Header().Set(api.HeaderStarts, fmt.Sprint(b.Starts))
	http.StripPrefix("/v1/sandboxes/"+r.PathValue("id")+"/guest", b.agent).ServeHTTP(w, r)
	return nil
}
