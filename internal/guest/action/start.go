package action

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
)

const (
	defaultReady    = 30 * time.Second
	maxReady        = 10 * time.Minute
	defaultInterval = 500 * time.Millisecond
	minInterval     = 10 * time.Millisecond
	maxInterval     = time.Minute

	shownLines = 10   // of what a service wrote, in an error
	shownBytes = 2000 // of each stream
)

// startService starts a service and waits until it is ready. It goes on where the caller
// leaves before.
func (c *call) startService(q *action.StartServiceRequest) (any, error) {
	sv, err := c.service(q)
	if err != nil {
		return nil, err
	}
	if err := c.s.services.begin(sv, func() { c.s.tasks.Go(func() { c.s.lookAfter(sv) }) }); err != nil {
		sv.stop()
		return nil, err
	}
	ctx, stop := c.present()
	defer stop()
	select {
	case <-sv.settled:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	st := sv.state()
	if sv.neverReady() && st.State == action.Failed && st.StopReason != nil {
		return nil, fail(kindUnavailable, "service %s has failed: %s%s", sv.name, *st.StopReason, sv.lastWords())
	}
	return st, nil
}

// lastWords is the end of what a service wrote, for an error.
func (sv *service) lastWords() string {
	var b strings.Builder
	for i, name := range []string{"stdout", "stderr"} {
		text, _ := sv.logs[i].last(shownLines)
		if len(text) > shownBytes {
			text = "…" + strings.ToValidUTF8(text[len(text)-shownBytes:], "")
		}
		if text = strings.TrimSpace(text); text != "" {
			fmt.Fprintf(&b, "; the last of its %s: %s", name, text)
		}
	}
	return b.String()
}

// service makes what a request asks for.
func (c *call) service(q *action.StartServiceRequest) (*service, error) {
	sv := &service{
		shape:   shape{name: q.ServiceName, command: q.Command, env: q.Env, restart: q.Restart, timeout: defaultReady, interval: defaultInterval},
		born:    time.Now(),
		logs:    [2]*record{newRecord(), newRecord()},
		settled: make(chan struct{}), done: make(chan struct{}), status: action.Running, started: time.Now(),
	}
	switch {
	case !validName(q.ServiceName):
		return nil, errors.New("service_name has to be 1 to 64 of A-Z a-z 0-9 . _ -, and no . or .. alone")
	case q.Command == "":
		return nil, errors.New("the command is empty")
	case q.Restart == "":
		sv.restart = never
	case q.Restart != never && q.Restart != onFailure && q.Restart != always:
		return nil, fmt.Errorf("restart %.16q: it has to be never, on-failure or always", q.Restart)
	}
	if err := sv.times(q); err != nil {
		return nil, err
	}
	a, dir, err := c.place(q.CWD)
	if err != nil {
		return nil, err
	}
	sv.cwd = dir
	if sv.shape.ready, err = c.s.readiness(q.Readiness, a, &sv.shape); err != nil {
		return nil, err
	}
	sv.ctx, sv.stop = context.WithCancel(c.s.ctx)
	return sv, nil
}

// times reads how long a service may take to be ready.
func (sv *service) times(q *action.StartServiceRequest) error {
	timeout, interval := time.Duration(q.ReadyTimeoutSeconds)*time.Second, time.Duration(q.ReadyIntervalMS)*time.Millisecond
	switch {
	case q.ReadyTimeoutSeconds < 0 || q.ReadyTimeoutSeconds > int(maxReady/time.Second):
		return fmt.Errorf("ready_timeout_seconds is %d: it has to be from 1 to %d", q.ReadyTimeoutSeconds, int(maxReady/time.Second))
	case timeout > 0:
		sv.timeout = timeout
	}
	switch {
	case interval == 0:
	case q.ReadyIntervalMS < 0 || interval < minInterval || interval > maxInterval:
		return fmt.Errorf("ready_interval_ms is %d: it has to be from %d to %d", q.ReadyIntervalMS, minInterval.Milliseconds(), maxInterval.Milliseconds())
	default:
		sv.interval = interval
	}
	return nil
}

func (c *call) statusService(q *action.ServiceRequest) (any, error) {
	sv, err := c.s.services.get(q.ServiceName)
	if err != nil {
		return nil, err
	}
	return sv.state(), nil
}

func (c *call) listServices(*action.ListRequest) (any, error) {
	return action.ListServicesReply{Services: c.s.services.list()}, nil
}

// logsService returns the last lines of all that a service wrote, over its restarts, or both ends
// of it.
func (c *call) logsService(q *action.LogsServiceRequest) (any, error) {
	sv, err := c.s.services.get(q.ServiceName)
	if err != nil {
		return nil, err
	}
	if q.TailLines < 0 {
		return nil, fmt.Errorf("tail_lines is %d: it can't be negative", q.TailLines)
	}
	q.TailLines = min(q.TailLines, maxLog)
	if err := c.take(2 * (headLog + maxLog)); err != nil {
		return nil, err
	}
	r := action.LogsServiceReply{Service: sv.state(), TailLines: q.TailLines}
	var cut [2]bool
	r.Stdout, cut[0] = sv.logs[0].last(q.TailLines)
	r.Stderr, cut[1] = sv.logs[1].last(q.TailLines)
	r.Truncated = cut[0] || cut[1]
	return r, nil
}

// stopService ends a service with all that it started, and tells how it ended; of one
// that has ended before, too.
func (c *call) stopService(q *action.ServiceRequest) (any, error) {
	sv, err := c.s.services.get(q.ServiceName)
	if err != nil {
		return nil, err
	}
	sv.stop()
	select {
	case <-sv.done:
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
	return sv.state(), nil
}
