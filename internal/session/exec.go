package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

const (
	// MaxOutput is how many bytes of the beginning of each stream of a command are kept.
	MaxOutput = 1 << 20
	// MaxTail is how many of what comes after are kept of its end; those between are counted.
	MaxTail = 256 << 10

	// orphanGrace is how long a command outlives the daemon that asked for it.
	orphanGrace = 10 * time.Second
	// attempts are how often a sandbox is tried that turns out to have ended.
	attempts = 2

	limitMemory = "memory"
	killedCode  = 137 // as a shell has it
)

// waiting is how a call waits for its turn.
type waiting struct {
	ordered bool             // it waits at all
	brief   bool             // and gives the turn back once the session is ready
	limit   <-chan time.Time // until when; nil: for good
	queued  time.Duration    // how long it did
}

var errTimeUp = errors.New("its time was up before its turn")

func (w *waiting) turn(ctx context.Context, r *Runtime, s *session) error {
	from := r.clock.Now()
	got := s.turn.take(ctx, w.limit)
	w.queued += r.clock.Now().Sub(from)
	switch {
	case got:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errTimeUp
}

// Exec runs a command in the session that Create would return. A command that
// ended, by whatever, is a Result; so is one whose time was up.
func (r *Runtime) Exec(ctx context.Context, c sandbox.Caller, spec Spec, cmd Command) (*Result, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	x := &execution{r: r, c: c, spec: spec, cmd: cmd, from: r.clock.Now()}
	res, err := x.exec(ctx)
	err = tidied(err, spec.Key, "run a command")
	x.audit(res, err)
	return res, err
}

// execution is one command on its way.
type execution struct {
	r       *Runtime
	c       sandbox.Caller
	spec    Spec
	cmd     Command
	from    time.Time
	w       waiting
	sandbox string // the sandbox's ID
	wall    string
	rec     string // the session's record
	f       found
}

func (x *execution) exec(ctx context.Context) (*Result, error) {
	if err := request.CheckIn(x.spec, x.cmd); err != nil {
		return nil, err
	}
	if err := request.CheckLine(x.cmd.Line); err != nil {
		return nil, err
	}
	x.w = waiting{ordered: true, limit: x.r.clock.After(x.cmd.Timeout)}
	for n := 1; ; n++ {
		s, f, err := x.r.acquireIn(ctx, x.c, x.spec, &x.w)
		if errors.Is(err, errTimeUp) {
			return x.neverRun(), nil
		}
		if err != nil {
			return nil, err
		}
		x.f.how = f.how
		x.f.notices = append(x.f.notices, f.notices...)
		res, err := x.inTurn(ctx, s)
		s.turn.give()
		x.r.release(s)
		if !errors.Is(err, agent.ErrUnreached) || n == attempts || ctx.Err() != nil {
			return res, err
		}
	}
}

// neverRun is the result of a command whose time was up before its turn came.
func (x *execution) neverRun() *Result {
	x.r.metrics.queueTimeouts.Add(1)
	x.f.say("the command was not run: the session's other commands took all of its %d seconds", x.cmd.Timeout/time.Second)
	return x.timedOut(&Result{SessionID: x.spec.Key, Backend: x.r.shaper.wall(x.spec), Duration: x.took(), Queued: x.w.queued})
}

func (x *execution) took() time.Duration { return x.r.clock.Now().Sub(x.from) }

func (x *execution) timedOut(res *Result) *Result {
	x.r.metrics.timeouts.Add(1)
	res.Status, res.ExitCode = sessions.StatusTimedOut, nil
	if len(res.Stderr) == 0 {
		res.Stderr = fmt.Appendf(nil, "Command timed out after %d seconds.", x.cmd.Timeout/time.Second)
	}
	res.Notices = x.f.notices
	return res
}

// inTurn runs the command. The turn must be held.
func (x *execution) inTurn(ctx context.Context, s *session) (*Result, error) {
	r := x.r
	r.mu.Lock()
	over, kept, sandboxName := s.over, s.rec.Workspace, s.rec.Sandbox
	x.sandbox, x.wall, x.rec = s.sandboxID, s.wall, s.rec.ID
	r.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(over, func() { cancel(context.Cause(over)) })()

	guard, err := r.quotas.guard(ctx, kept, s.id.key)
	if err != nil {
		return nil, err
	}
	defer guard.close()
	notices, err := r.bring(ctx, s, x.spec)
	if err != nil {
		return nil, err
	}
	x.f.notices = append(x.f.notices, notices...)

	began := r.clock.Now()
	out, err := x.run(ctx, s, guard, cancel)
	r.metrics.execTime.Add(int64(r.clock.Now().Sub(began)))
	if qerr := guard.after(ctx, err); qerr != nil {
		r.metrics.quotaStops.Add(1)
		return nil, r.evict(ctx, s, x.rec, qerr)
	}
	if err != nil {
		res, err := x.broken(ctx, s, sandboxName, out, err)
		if err != nil {
			return nil, err
		}
		return res, nil
	}
	x.f.notices = append(x.f.notices, r.takeBack(ctx, s, x.spec.Skill, x.cmd)...)
	x.writeOut(ctx, s)
	return x.result(ctx, s, out), nil
}

// run has the guest run the command for the time that is left.
func (x *execution) run(ctx context.Context, s *session, guard *guard, cancel context.CancelCauseFunc) (agent.Outcome, error) {
	left := max(x.cmd.Timeout-x.w.queued, time.Millisecond)
	cmd, input := agent.Script(x.cmd.Line, x.cmd.Dir, x.cmd.Env)
	cmd.TimeoutMs, cmd.OrphanGraceMs = uint64(left.Milliseconds()), uint64(orphanGrace.Milliseconds())
	ctx, stop := context.WithTimeoutCause(ctx, left+x.r.c.Silence(), errSilent)
	defer stop()
	defer guard.watch(ctx, cancel, x.r.log)()
	return x.r.guest(s).Exec(ctx, cmd, input, agent.Keep{Head: MaxOutput, Tail: MaxTail})
}

var errSilent = sandbox.Errorf(sandbox.Unavailable, "the sandbox's guest did not answer, and was stopped").WithHint("try again")

// stop ends a sandbox whose guest does not answer. The next call starts it.
func (r *Runtime) stop(ctx context.Context, s *session, name string) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := r.o.Manager.Stop(ctx, sandbox.Caller{Owner: s.id.owner}, name); err != nil {
		r.log.Error("stop a sandbox that does not answer", "session", shown(s.id.key), "error", err)
	}
}

// result says how a command ended.
func (x *execution) result(ctx context.Context, s *session, out agent.Outcome) *Result {
	code := int(out.Exit.GetCode())
	res := x.output(out)
	res.Status, res.ExitCode = sessions.StatusCompleted, &code
	for _, l := range out.Exit.GetLimits() {
		if slices.Contains(knownLimits, l) {
			res.Limits = append(res.Limits, l)
		}
	}
	switch out.Exit.GetReason() {
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		res.Limits = slices.Compact(append([]string{limitMemory}, res.Limits...))
		x.f.say("the command used up the session's %d MiB of memory, and was ended", x.spec.Memory>>20)
	case guestv1.Reason_REASON_TIMED_OUT:
		if x.cmd.Reset {
			x.r.reset(ctx, s, x.rec)
			x.f.say("session %s was ended with the command, as on_timeout asks", shown(s.id.key))
		}
		return x.timedOut(res)
	case guestv1.Reason_REASON_NOT_STARTED:
		res.Stderr = append(res.Stderr, fmt.Sprintf("%.400q", out.Exit.GetError())...)
	case guestv1.Reason_REASON_KILLED:
		x.f.say("the command was ended from outside")
	}
	res.Notices = x.f.notices
	return res
}

var knownLimits = []string{limitMemory, sandbox.LimitPIDs, sandbox.LimitDisk, sandbox.LimitInodes}

func (x *execution) output(out agent.Outcome) *Result {
	x.r.metrics.stdoutBytes.Add(out.Stdout.All())
	x.r.metrics.stderrBytes.Add(out.Stderr.All())
	return &Result{
		SessionID: x.spec.Key, Backend: x.wall, Duration: x.took(), Queued: x.w.queued,
		Stdout: out.Stdout.Head, StdoutTail: out.Stdout.Tail, StdoutBytes: out.Stdout.All(),
		Stderr: out.Stderr.Head, StderrTail: out.Stderr.Tail, StderrBytes: out.Stderr.All(),
	}
}

// broken says what became of a command that did not end as it should.
func (x *execution) broken(ctx context.Context, s *session, sandboxName string, out agent.Outcome, err error) (*Result, error) {
	if refusal, ok := errors.AsType[*agent.Refusal](err); ok {
		return nil, fault.Invalid("the command can't be started: %s", refusal.Text)
	}
	if ctx.Err() == nil && errors.Is(err, errSilent) {
		x.r.stop(ctx, s, sandboxName)
	}
	if ctx.Err() != nil || !errors.Is(err, agent.ErrBroken) || !out.Begun {
		return nil, err
	}
	// The sandbox may have ended. Dialling tells, and has that written down.
	c := sandbox.Caller{Owner: s.id.owner}
	if conn, derr := x.r.o.Manager.Dial(ctx, c, sandboxName, sandbox.GuestPort); derr == nil {
		_ = conn.Close()
		return nil, fault.Because(err, sandbox.Unavailable, "session %s: the sandbox broke off in the middle of the command", shown(s.id.key)).WithHint("try again")
	}
	sb, gerr := x.r.o.Manager.Get(ctx, c, sandboxName)
	if gerr == nil && sb.Ended == sandbox.EndOutOfMemory {
		code := killedCode
		res := x.output(out)
		res.Status, res.ExitCode, res.Limits = sessions.StatusCompleted, &code, []string{limitMemory}
		x.f.say("the command used up the session's %d MiB of memory, and ended the sandbox: its processes are gone", x.spec.Memory>>20)
		res.Notices = x.f.notices
		return res, nil
	}
	return nil, fault.Because(err, sandbox.Unavailable, "session %s: its sandbox ended in the middle of the command", shown(s.id.key)).
		WithHint("try again: that starts it again")
}
