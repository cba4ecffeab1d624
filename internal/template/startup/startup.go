// Package startup runs what a sandbox wants run at each start: its start
// command, which goes on in the background, and its ready command, again and
// again until it succeeds.
//
// It refuses a start whose command ends with an error before the sandbox is
// ready, or whose ready command never succeeds, and quotes the last lines that
// the command wrote. Those are the guest's: they are escaped and bounded.
package startup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Command is the ID by which a sandbox's start command is found among its
// commands.
const Command = "carboy-start"

const (
	firstPoll = 20 * time.Millisecond // between ready commands
	lastPoll  = time.Second
	settle    = 200 * time.Millisecond // that a start command without a ready one is watched for
	lookBack  = 2 * time.Second        // for its output
	maxTail   = 600                    // bytes of it that an error quotes
)

var _ sandbox.StartFunc = Run

// Run is a sandbox.StartFunc.
func Run(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) error {
	g := agent.New(dial)
	defer g.Close()
	s := sb.Spec.Startup
	if s.Command != "" {
		if err := g.Begin(ctx, Command, agent.Shell(command(sb, s.Command), "", "", nil)); err != nil {
			return explain(ctx, sb, err)
		}
	}
	if s.Ready == "" {
		return explain(ctx, sb, watch(ctx, g, settle))
	}
	return explain(ctx, sb, await(ctx, g, sb, s))
}

// command has text run with the sandbox's own PATH, if it has one: a login shell
// sets another.
func command(sb *sandbox.Sandbox, text string) string {
	return shell.WithPath(text, sb.Spec.Env)
}

// failed is a start that will not succeed.
type failed struct{ what, tail string }

func (f *failed) Error() string { return f.what }

// explain makes err one for users.
func explain(ctx context.Context, sb *sandbox.Sandbox, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		if cause, ok := errors.AsType[*sandbox.Error](context.Cause(ctx)); ok {
			f, _ := errors.AsType[*failed](err)
			if f == nil || f.tail == "" {
				return cause
			}
			e := *cause
			e.Msg += ": " + f.tail
			return &e
		}
		return err
	}
	f, ok := errors.AsType[*failed](err)
	if !ok {
		return err
	}
	e := sandbox.Errorf(sandbox.Unavailable, "sandbox %s: %s", sb.Spec.Name, f.what).
		WithHint("mend the template's start or ready command")
	if f.tail != "" {
		e.Msg += ": " + f.tail
	}
	return e
}

// watch sees whether the start command fails at once.
func watch(ctx context.Context, g *agent.Guest, d time.Duration) error {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(firstPoll)
	defer tick.Stop()
	for {
		if err := alive(ctx, g); err != nil {
			return err
		}
		select {
		case <-end.C:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// await runs the ready command until it succeeds.
func await(ctx context.Context, g *agent.Guest, sb *sandbox.Sandbox, s *sandbox.Startup) error {
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		if s.Command != "" {
			if err := alive(ctx, g); err != nil {
				return err
			}
		}
		var last tail
		exit, err := g.Run(ctx, agent.Shell(command(sb, s.Ready), "", "", nil), last.add)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && exit.GetCode() == 0:
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &failed{what: "the ready command never succeeded", tail: cmp.Or(output(ctx, g, s), last.String())}
		}
	}
}

func output(ctx context.Context, g *agent.Guest, s *sandbox.Startup) string {
	if s.Command == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBack)
	defer cancel()
	var t tail
	g.Output(ctx, Command, lookBack, t.add)
	return t.String()
}

// alive fails where the start command has ended with an error. One that ended
// well has put what it started into the background.
func alive(ctx context.Context, g *agent.Guest) error {
	exit, err := g.Ended(ctx, Command)
	if err != nil || exit == nil || exit.GetReason() == guestv1.Reason_REASON_EXITED && exit.GetCode() == 0 {
		return err
	}
	var t tail
	g.Output(ctx, Command, lookBack, t.add)
	return &failed{what: "its start command ended with " + agent.Status(exit), tail: t.String()}
}

// tail keeps the end of what a command wrote.
type tail struct{ b []byte }

func (t *tail) add(_ bool, b []byte) {
	if len(b) > maxTail {
		b = b[len(b)-maxTail:]
	}
	t.b = append(t.b, b...)
	if n := len(t.b) - maxTail; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
}

// String returns it escaped, and empty where there is nothing.
func (t *tail) String() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "?"))
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%q", s)
}
