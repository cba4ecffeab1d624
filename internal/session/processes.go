package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// managed is a managed process.
type managed struct {
	p     *process.Process // nil while it is being started
	ended time.Time        // zero while it counts as running
	// quit ends its start, which a sandbox that has ended would never answer. It
	// has no effect later.
	quit context.CancelCauseFunc
	// stopped: its end was asked for, since its workspace is over its quota. Guarded by the
	// runtime's mu.
	stopped bool
}

// StartProcess starts a managed process in a session that is there, and wakes
// it. One that runs under the same ID is ended first.
func (r *Runtime) StartProcess(ctx context.Context, c sandbox.Caller, key string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	defer done()
	spec.ProcessID, spec.Cwd = cmp.Or(spec.ProcessID, sessions.DefaultProcess), cmp.Or(spec.Cwd, tools.WorkspacePath)
	from := r.clock.Now()
	info, sandboxID, err := r.startProcess(ctx, c, key, spec)
	err = tidied(err, key, "start a process")
	r.tell(AuditRecord{
		Time: from.UTC(), Owner: c.Owner, Session: key, Sandbox: sandboxID, Action: "start_process", Process: spec.ProcessID,
		Command: request.Written(commandText(spec)), EnvKeys: request.EnvNames(spec.Env),
		Status: info.Status, ExitCode: info.ExitCode, Error: r.class(err), Duration: r.clock.Now().Sub(from),
	})
	return info, err
}

// maxCommandText is more than is written down of a command, in bytes.
const maxCommandText = 4096

func commandText(spec sessions.ProcessSpec) string {
	text := spec.Command
	for _, a := range spec.Args {
		if text += " " + a; len(text) > maxCommandText {
			break
		}
	}
	return text
}

func (r *Runtime) startProcess(ctx context.Context, c sandbox.Caller, key string, spec sessions.ProcessSpec) (sessions.ProcessInfo, string, error) {
	if err := request.CheckProcess(spec); err != nil {
		return sessions.ProcessInfo{}, "", err
	}
	s, f, err := r.existing(ctx, c, key)
	if err != nil {
		return sessions.ProcessInfo{}, "", err
	}
	defer r.release(s)
	notices, err := r.bring(ctx, s, r.record(s).Spec)
	if err != nil {
		return sessions.ProcessInfo{}, r.sandboxID(s), err
	}
	look, err := r.quotas.guard(ctx, r.record(s).Workspace, s.id.key) // what is full already gets no writer
	if err != nil {
		return sessions.ProcessInfo{}, r.sandboxID(s), err
	}
	look.close()
	if !s.procTurn.take(ctx, nil) {
		return sessions.ProcessInfo{}, r.sandboxID(s), context.Cause(ctx)
	}
	defer s.procTurn.give()
	if err := r.endProcess(ctx, s, spec.ProcessID); err != nil {
		return sessions.ProcessInfo{}, r.sandboxID(s), err
	}
	m, err := r.launch(ctx, s, spec)
	if err != nil {
		return sessions.ProcessInfo{}, r.sandboxID(s), err
	}
	info := m.p.Info()
	info.Notices = append(append(f.notices, notices...), info.Notices...)
	return info, r.sandboxID(s), nil
}

// existing returns a session that is there, ready, with a lease on it.
func (r *Runtime) existing(ctx context.Context, c sandbox.Caller, key string) (*session, found, error) {
	s, err := r.find(c, key)
	if err != nil {
		return nil, found{}, err
	}
	f := found{}
	err = func() error {
		if !s.life.take(ctx, nil) {
			return context.Cause(ctx)
		}
		defer s.life.give()
		r.mu.Lock()
		there, spec := s.state.listed(), s.rec.Spec
		r.mu.Unlock()
		if !there {
			return fault.NotFound(shown(key))
		}
		return r.ensure(ctx, s, spec, false, &f)
	}()
	if err != nil {
		r.release(s)
		return nil, f, err
	}
	return s, f, nil
}

// launch starts a process, and writes it down. procTurn must be held.
func (r *Runtime) launch(ctx context.Context, s *session, spec sessions.ProcessSpec) (*managed, error) {
	start, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	m := &managed{quit: quit}
	if err := r.countProcess(s, spec.ProcessID, m); err != nil {
		return nil, err
	}
	p, err := process.Start(start, r.processOptions(s, m, spec))
	if err != nil {
		r.uncountProcess(s, spec.ProcessID, m)
		if start.Err() != nil && ctx.Err() == nil {
			return nil, context.Cause(start)
		}
		return nil, err
	}
	r.mu.Lock()
	m.p = p
	gone := s.procs[spec.ProcessID] != m // the session has ended meanwhile
	err = context.Cause(start)
	r.mu.Unlock()
	if gone {
		err = deletedMeanwhile(s)
	}
	if err == nil {
		err = r.keepProcess(ctx, s, spec.ProcessID, m)
	}
	if err != nil {
		stop, cancel := detached(ctx)
		defer cancel()
		if !gone {
			_ = p.Stop(stop)
		}
		if derr := r.discard(stop, s, spec.ProcessID, m); derr != nil {
			r.log.Warn("forget a process that was not wanted", "session", shown(s.id.key), "process", spec.ProcessID, "error", derr)
		}
		return nil, err
	}
	r.metrics.started.Add(1)
	r.watchProcesses(s)
	return m, nil
}

func (r *Runtime) processOptions(s *session, m *managed, spec sessions.ProcessSpec) process.Options {
	return process.Options{
		SessionID: s.id.key, Spec: spec, Dial: r.dial(s), Dir: r.o.ProcessDir, Log: r.log,
		OnExit: func(sessions.ProcessInfo) { r.processEnded(s, spec.ProcessID, m) },
		OnUse: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			s.used = r.now()
		},
	}
}

// countProcess enters a process that is about to be started.
func (r *Runtime) countProcess(s *session, pid string, m *managed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := r.c.Limits.MaxProcesses; r.running >= most {
		r.metrics.capacity.Add(1)
		return fault.ProcessCapacity(most)
	}
	r.running++
	s.procs[pid] = m
	return nil
}

// uncountProcess takes one out that does not run any more, or never did.
func (r *Runtime) uncountProcess(s *session, pid string, m *managed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endedLocked(m)
	if s.procs[pid] == m {
		delete(s.procs, pid)
	}
}

func (r *Runtime) endedLocked(m *managed) {
	if m.ended.IsZero() {
		m.ended = r.now()
		r.running--
	}
}

// processEnded notes that a process has ended by itself, or with its sandbox.
func (r *Runtime) processEnded(s *session, pid string, m *managed) {
	r.mu.Lock()
	r.endedLocked(m)
	s.used = r.now()
	write := m.p != nil && !r.closed // else its start writes it down, or the next daemon
	if write {
		r.calls.Add(1)
		defer r.calls.Done()
	}
	r.mu.Unlock()
	r.nudge()
	r.watchProcesses(s)
	if !write {
		return
	}
	ctx, cancel := detached(context.Background())
	defer cancel()
	if err := r.keepProcess(ctx, s, pid, m); err != nil {
		r.log.Warn("write down the end of a process", "session", shown(s.id.key), "process", pid, "error", err)
	}
}

// keepProcess writes a process down, as long as it is the session's.
func (r *Runtime) keepProcess(ctx context.Context, s *session, pid string, m *managed) error {
	return r.amend(ctx, s, func(rec *record.Session) {
		r.mu.Lock()
		is := s.procs[pid] == m
		r.mu.Unlock()
		if !is || rec.ID == "" {
			return
		}
		b, err := json.Marshal(m.p.Record())
		if err != nil {
			return
		}
		if rec.Processes == nil {
			rec.Processes = map[string]json.RawMessage{}
		}
		rec.Processes[pid] = b
	})
}

// named returns a process of a session that is there, with a lease on that.
func (r *Runtime) named(c sandbox.Caller, key, pid string) (*session, *managed, error) {
	pid = cmp.Or(pid, sessions.DefaultProcess)
	s, err := r.find(c, key)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	there, m := s.state.listed(), s.procs[pid]
	if m != nil && m.p == nil {
		m = nil
	}
	r.mu.Unlock()
	switch {
	case !there:
		err = fault.NotFound(shown(key))
	case m == nil:
		err = fault.ProcessNotFound(shown(key), shown(pid))
	default:
		return s, m, nil
	}
	r.release(s)
	return nil, nil, err
}

// Process returns a managed process, which may have ended.
func (r *Runtime) Process(ctx context.Context, c sandbox.Caller, key, pid string) (sessions.ProcessInfo, error) {
	_, done, err := r.begin(ctx, c)
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	defer done()
	s, m, err := r.named(c, key, pid)
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	defer r.leave(s)
	return m.p.Info(), nil
}

// StopProcess ends a managed process and all that it started, and forgets it.
func (r *Runtime) StopProcess(ctx context.Context, c sandbox.Caller, key, pid string) error {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	pid = cmp.Or(pid, sessions.DefaultProcess)
	s, _, err := r.named(c, key, pid)
	if err != nil {
		return err
	}
	defer r.release(s)
	if !s.procTurn.take(ctx, nil) {
		return tidied(context.Cause(ctx), key, "stop a process")
	}
	defer s.procTurn.give()
	err = r.endProcess(ctx, s, pid)
	if sandbox.KindOf(err) == sandbox.Exhausted { // it has ended, and its record says so when there is room
		r.log.Warn("write that a process was stopped", "session", shown(key), "process", pid, "error", err)
		err = nil
	}
	return tidied(err, key, "stop a process")
}

// Attach waits until nobody reads a managed process, and becomes its reader.
// The process goes on when the attachment is closed. For one that has ended,
// and whose output was read by then, the error is io.EOF besides.
func (r *Runtime) Attach(ctx context.Context, c sandbox.Caller, key, pid string) (*process.Attachment, error) {
	return r.attach(ctx, c, key, pid, (*process.Process).Attach)
}

// TakeOver is Attach for one that does not wait: the reader before is ended.
func (r *Runtime) TakeOver(ctx context.Context, c sandbox.Caller, key, pid string) (*process.Attachment, error) {
	return r.attach(ctx, c, key, pid, (*process.Process).TakeOver)
}

func (r *Runtime) attach(ctx context.Context, c sandbox.Caller, key, pid string, how func(*process.Process, context.Context) (*process.Attachment, error)) (*process.Attachment, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	pid = cmp.Or(pid, sessions.DefaultProcess)
	s, m, err := r.named(c, key, pid)
	if err != nil {
		return nil, err
	}
	defer r.release(s)
	a, err := how(m.p, ctx)
	if errors.Is(err, process.ErrEnded) || errors.Is(err, process.ErrGone) {
		e := fault.ProcessConflict(shown(key), shown(pid), "is not running")
		e.Err = errors.Join(e.Err, err) // which may be io.EOF
		return nil, e
	}
	return a, tidied(err, key, "attach to a process")
}
