package action

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

// The policies of restarts.
const (
	never     = "never"
	onFailure = "on-failure"
	always    = "always"
)

const (
	// A service is started again after a wait that grows with each time, up to
	// longestWait, and is the first one after a run of steady.
	longestWait = 30 * time.Second
	steady      = time.Minute
)

// service is one that is looked after until it has ended for good.
type service struct {
	shape
	born    time.Time
	logs    [2]*record
	ctx     context.Context // ends when it is to stop
	stop    context.CancelFunc
	settled chan struct{} // closed once it was ready, or has ended
	done    chan struct{} // closed once nothing looks after it

	mu       sync.Mutex
	status   string
	ready    bool
	was      bool // ready, if not now
	restarts int
	started  time.Time // its last start
	ended    time.Time
	exit     *int
	reason   string // why it does not run
}

// over reports whether it has ended for good.
func (sv *service) over() bool {
	select {
	case <-sv.done:
		return true
	default:
		return false
	}
}

// state tells of a service as it is now.
func (sv *service) state() action.Service {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	out := action.Service{
		ServiceName: sv.name, Command: sv.command, CWD: valid(sv.cwd), State: sv.status, Ready: sv.ready,
		Restarts: sv.restarts, StartedAt: seconds(sv.started), ExitCode: sv.exit,
	}
	if sv.status != action.Running {
		at := seconds(sv.ended)
		out.EndedAt = &at
	}
	if reason := sv.reason; reason != "" {
		out.StopReason = &reason
	}
	return out
}

// begun notes a start, the first or another.
func (sv *service) begun(again bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.status, sv.ready, sv.reason, sv.exit, sv.started = action.Running, false, "", nil, time.Now()
	if again {
		sv.restarts++
	}
}

func (sv *service) isReady() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.ready, sv.was = true, true
}

func (sv *service) neverReady() bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return !sv.was
}

// note says what became of a run.
func (sv *service) note(status, reason string, exit *process.Exit) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.status, sv.reason, sv.ready, sv.ended = status, reason, false, time.Now()
	if exit != nil {
		sv.exit = &exit.Code
	}
}

// lookAfter runs a service, again and again where that is wanted.
func (s *Server) lookAfter(sv *service) {
	settle := sync.OnceFunc(func() { close(sv.settled) })
	defer settle()
	defer close(sv.done)
	defer sv.stop()
	pause := s.pace.again
	for again := false; ; again = true {
		end := s.run(sv, again, settle)
		status, reason := end.verdict(sv.restart, again)
		sv.note(status, reason, end.exit)
		if status != action.Restarting {
			return
		}
		if time.Since(end.since) >= steady {
			pause = s.pace.again
		}
		select {
		case <-time.After(pause):
		case <-sv.ctx.Done():
			sv.note(action.Stopped, stoppedText, end.exit)
			return
		}
		pause = min(2*pause, longestWait)
	}
}

const stoppedText = "it was stopped"

// ending is how a run of a service came to its end.
type ending struct {
	since   time.Time
	exit    *process.Exit // nil: it did not start
	err     error         // why it did not start, or was not ready
	stopped bool          // it was asked to
	ready   bool          // it was
}

// verdict says what a service is after a run, and why. One that has never been ready is
// not started again: who started it is told instead.
func (e *ending) verdict(policy string, again bool) (status, reason string) {
	switch {
	case e.stopped:
		return action.Stopped, stoppedText
	case e.err != nil && !again:
		return action.Failed, e.err.Error()
	case e.err != nil:
		reason = e.err.Error()
	case !e.ready && !again:
		return action.Failed, "it ended before it was ready: " + e.exit.String()
	default:
		reason = "it ended by itself: " + e.exit.String()
	}
	failed := e.err != nil || e.exit.Code != 0
	switch {
	case policy == always, policy == onFailure && failed:
		return action.Restarting, reason
	case failed:
		return action.Failed, reason
	}
	return action.Stopped, reason
}

// run runs a service once, and returns when nothing of it is left.
func (s *Server) run(sv *service, again bool, settle func()) *ending {
	end := &ending{since: time.Now()}
	if !s.opts.Wait(sv.ctx) {
		end.stopped = true
		return end
	}
	sv.begun(again)
	cmd, f, err := s.opts.Engine.StartFollowed(newID("service"), sv.spec())
	if err != nil {
		end.err = err
		return end
	}
	gathered := make(chan struct{})
	s.tasks.Go(func() {
		defer close(gathered)
		_ = gather(context.Background(), cmd, f, [2]sink{sv.logs[0], sv.logs[1]}) // it ends with the command
	})
	if exit, ended := cmd.Exit(); ended && exit.Reason == process.NotStarted {
		end.err = errors.New(exit.Error)
		return end
	}
	if end.err = sv.awaitReady(cmd); end.err == nil {
		if _, ended := cmd.Exit(); !ended || sv.shape.ready == nil {
			end.ready = true
			sv.isReady()
			settle()
		}
		select {
		case <-cmd.Done():
		case <-sv.ctx.Done():
		}
	}
	end.stopped = sv.ctx.Err() != nil
	s.finish(cmd, end.stopped)
	if exit, ended := cmd.Exit(); ended {
		end.exit = &exit
		<-gathered
	} else if end.err == nil {
		end.err = errors.New("it can't be ended")
	}
	return end
}

// finish ends all that a service started: with time to end by itself where it was asked
// to.
func (s *Server) finish(cmd *process.Command, gently bool) {
	if gently && s.ctx.Err() == nil && cmd.Signal(unix.SIGTERM, true, by) == nil {
		select {
		case <-cmd.Done():
		case <-time.After(s.pace.grace):
		case <-s.ctx.Done():
		}
	}
	if err := cmd.Signal(unix.SIGKILL, true, by); err != nil && !errors.Is(err, process.ErrEnded) {
		s.log.Warn("end a service", "err", err)
	}
	select {
	case <-cmd.Done():
	case <-time.After(closeTime):
	}
}

// awaitReady waits until a service is ready, has ended or is to stop, and fails where
// its time is over before.
func (sv *service) awaitReady(cmd *process.Command) error {
	if sv.shape.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(sv.ctx, sv.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var last error // what was missing, and not that there was no time to look
	for {
		err := sv.shape.ready(ctx)
		if err == nil {
			return nil
		}
		if last == nil || time.Now().Before(deadline) {
			last = err
		}
		select {
		case <-cmd.Done():
			return nil
		case <-sv.ctx.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("it was not ready within %v: %w", sv.timeout, last)
		case <-time.After(sv.interval):
		}
	}
}
