package session

import (
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// audit tells of a command that has ended, or that came to nothing.
func (x *execution) audit(res *Result, err error) {
	m := &x.r.metrics
	m.execs.Add(1)
	m.queueTime.Add(int64(x.w.queued))
	if err != nil {
		m.execErrors.Add(1)
	}
	a := AuditRecord{
		Time: x.from.UTC(), Owner: x.c.Owner, Session: x.spec.Key, Sandbox: x.sandbox, Action: "exec",
		Command: request.Written(x.cmd.Line), EnvKeys: request.EnvNames(x.cmd.Env),
		Error: x.r.class(err), Duration: x.took(), Queued: x.w.queued, SessionIs: x.f.how,
	}
	if res != nil {
		a.Status, a.ExitCode, a.Limits = res.Status, res.ExitCode, res.Limits
		a.Stdout, a.Stderr = res.StdoutBytes, res.StderrBytes
	}
	x.r.tell(a)
}

func (r *Runtime) tell(a AuditRecord) {
	// What was refused is told too, and may be of any length.
	a.Session, a.Process = request.Written(a.Session), request.Written(a.Process)
	r.log.Info("session "+a.Action, "owner", a.Owner, "session", shown(a.Session), "sandbox", a.Sandbox, "process", a.Process, "path", a.Path,
		"command", a.Command, "env_keys", a.EnvKeys, "status", a.Status, "error", a.Error,
		"duration", a.Duration.Round(time.Millisecond), "queued", a.Queued.Round(time.Millisecond), "stdout", a.Stdout, "stderr", a.Stderr)
	if r.o.Audit != nil {
		r.o.Audit(a)
	}
}

// class is what an error is called in an AuditRecord; "" for none.
func (r *Runtime) class(err error) string {
	if err == nil {
		return ""
	}
	return r.o.Class(err)
}

// counters are what Metrics counts.
type counters struct {
	created, reused, replaced, woken, slept, reaped, deleted atomic.Int64
	execs, execErrors, timeouts, queueTimeouts               atomic.Int64
	started, restored                                        atomic.Int64
	tools, toolErrors, transfers, transferErrors             atomic.Int64
	conflicts, capacity, quotaStops                          atomic.Int64
	queueTime, execTime                                      atomic.Int64
	stdoutBytes, stderrBytes                                 atomic.Int64
}

// Metrics returns what was counted.
func (r *Runtime) Metrics() Metrics {
	m := &r.metrics
	out := Metrics{
		Created: m.created.Load(), Reused: m.reused.Load(), Replaced: m.replaced.Load(), Woken: m.woken.Load(),
		Slept: m.slept.Load(), Reaped: m.reaped.Load(), Deleted: m.deleted.Load(),
		Execs: m.execs.Load(), ExecErrors: m.execErrors.Load(), Timeouts: m.timeouts.Load(), QueueTimeouts: m.queueTimeouts.Load(),
		ProcessesStarted: m.started.Load(), ProcessesRestored: m.restored.Load(),
		Tools: m.tools.Load(), ToolErrors: m.toolErrors.Load(), Transfers: m.transfers.Load(), TransferErrors: m.transferErrors.Load(),
		Conflicts: m.conflicts.Load(), CapacityRefusals: m.capacity.Load(), QuotaStops: m.quotaStops.Load(),
		QueueTime: time.Duration(m.queueTime.Load()), ExecTime: time.Duration(m.execTime.Load()),
		StdoutBytes: m.stdoutBytes.Load(), StderrBytes: m.stderrBytes.Load(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		switch {
		case s.state == awake:
			out.Sessions++
		case s.state.sleeps():
			out.Asleep++
		}
	}
	out.Processes = r.running
	return out
}
