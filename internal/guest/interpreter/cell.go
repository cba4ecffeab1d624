package interpreter

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/jupyter"
)

// cell is code that a kernel runs.
type cell struct {
	id   string
	out  *outbox // nil for our own, whose output nobody sees
	mu   sync.Mutex
	said bool // that it failed
	bad  failure
	over bool // its limit of output
	// late is how the reply says that it failed. It comes by another socket than
	// the output does, and may overtake it: it is told once all of that is here.
	late *failure

	replied, idle, gone, stop chan struct{} // closed when it has been, or has to
	once                      [4]sync.Once
}

// request is an execute_request.
type request struct {
	Code        string         `json:"code"`
	Silent      bool           `json:"silent"`
	History     bool           `json:"store_history"`
	Expressions map[string]any `json:"user_expressions"`
	AllowStdin  bool           `json:"allow_stdin"`
	StopOnError bool           `json:"stop_on_error"`
}

// run runs code to its end, and interrupts it when ctx ends. Code of our own
// has no outbox. The error says how it failed.
func (k *kernel) run(ctx context.Context, code string, out *outbox) *failure {
	c, err := k.send("execute_request", request{
		Code: code, Silent: out == nil, History: out != nil, Expressions: map[string]any{},
	}, out)
	if err != nil {
		e := errorEvent("RequestError", err.Error())
		return &e
	}
	defer k.release()
	k.follow(ctx, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said {
		return &c.bad
	}
	return nil
}

// follow waits for the end of a cell.
func (k *kernel) follow(ctx context.Context, c *cell) {
	left, over := ctx.Done(), c.stop
	var again, enough <-chan time.Time
	for {
		select {
		case <-c.replied:
			k.settle(c)
			c.failLate()
			return
		case <-c.gone:
			return
		case <-left:
			left, again = nil, time.After(0)
		case <-over:
			over, again, enough = nil, time.After(0), time.After(overGrace)
		case <-enough:
			k.signal(syscall.SIGKILL)
		case <-again:
			k.interrupt()
			again = time.After(againEvery)
		}
	}
}

// settle waits for the rest of the output of a cell that has its reply, as long
// as the kernel has something to broadcast. A kernel drops what is not taken
// fast enough: then the cell fails, rather than lack a part in silence.
func (k *kernel) settle(c *cell) {
	for range idleRounds {
		before := k.heard.Load()
		select {
		case <-c.idle:
			return
		case <-c.gone:
			return
		case <-time.After(idleGrace):
		}
		if k.heard.Load() == before {
			break
		}
	}
	c.failLate()
	if c.out != nil {
		c.fail(errorEvent("OutputLost", "the kernel dropped the end of the cell's output, since there was too much at once"))
	}
}

// What a cell's done is called with.
const (
	replied = iota
	idle
	gone
	stop
)

// done closes one of the cell's channels.
func (c *cell) done(i int) {
	c.once[i].Do(func() { close([]chan struct{}{c.replied, c.idle, c.gone, c.stop}[i]) })
}

// fail notes how the cell failed, and tells its client the first time.
func (c *cell) fail(e failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said {
		return
	}
	c.said, c.bad = true, e
	if c.out != nil {
		c.out.say(e)
	}
}

// exceed ends a cell that has put out too much.
func (c *cell) exceed() {
	if c.over {
		return
	}
	c.over = true
	c.fail(errorEvent("OutputLimitExceeded", fmt.Sprintf("the cell put out more than %d MiB, and was interrupted", maxOutput>>20)))
	c.done(stop)
}

// message takes what the kernel says of the cell. k.mu is held.
func (c *cell) message(m jupyter.Message) {
	switch m.Header.Type {
	case "error":
		c.fail(exception(m.Content))
	case "status":
		var s struct {
			State string `json:"execution_state"`
		}
		if json.Unmarshal(m.Content, &s) == nil && s.State == "idle" {
			c.done(idle)
		}
	case "execute_reply", "kernel_info_reply":
		c.reply(m.Content)
	default:
		if c.out == nil || c.over {
			return
		}
		ev, err := event(m)
		if err != nil {
			c.fail(errorEvent("MessageError", err.Error()))
		} else if ev != nil && !c.out.put(ev) {
			c.exceed()
		}
	}
}

func (c *cell) reply(content json.RawMessage) {
	var r struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(content, &r)
	var late *failure
	switch r.Status {
	case "error":
		e := exception(content)
		late = &e
	case "abort", "aborted":
		e := errorEvent("ExecutionAborted", "Execution was aborted")
		late = &e
	}
	c.mu.Lock()
	c.late = late
	c.mu.Unlock()
	c.done(replied)
}

// failLate tells what the reply said, unless the output said it before.
func (c *cell) failLate() {
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	if late != nil {
		c.fail(*late)
	}
}
