package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Wall is one kind of wall that sandboxes can have.
type Wall struct {
	Name string
	// Open opens it over a state directory, which walls may share. It fails where this
	// machine or this caller can't use the wall at all.
	Open func(ctx context.Context, state string) (Backend, error)
}

// Backend is what is asked of a wall. sandbox.Backend has the contracts.
type Backend interface {
	Capabilities() sandbox.Capabilities
	Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error)
	Stop(ctx context.Context, id string) (lost []string, err error)
	Remove(ctx context.Context, id string) error
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
	Instances(ctx context.Context) ([]string, error)
	Close() error
}

// program is the command that is run in an instance.
const program = "true"

// try starts an instance behind a wall, runs a command in it and removes it. A
// panic, or a wall that does not answer, is a verdict too.
func (m *machine) try(ctx context.Context, w Wall) Verdict {
	done := make(chan Verdict, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- Verdict{State: Missing, Error: fmt.Sprintf("the wall broke: %v", p)}
			}
		}()
		done <- m.tryInstance(ctx, w)
	}()
	late := time.NewTimer(2*instanceLimit + grace) // a start, and its undoing
	defer late.Stop()
	select {
	case v := <-done:
		return v
	case <-late.C:
		return Verdict{State: Missing, Error: fmt.Sprintf("no sandbox within %v", 2*instanceLimit)}
	}
}

func (m *machine) tryInstance(ctx context.Context, w Wall) (v Verdict) {
	if m.scratchErr != nil {
		return unusable(m.scratchErr)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, instanceLimit, fmt.Errorf("no command has run in a sandbox within %v", instanceLimit))
	defer cancel()
	b, err := w.Open(ctx, m.scratch.path)
	if err != nil {
		return unusable(err)
	}
	sb := &sandbox.Sandbox{
		ID: "doctor_" + strings.ToLower(rand.Text()[:10]), Owner: fmt.Sprintf("uid:%d", m.uid), Backend: w.Name,
		Spec: sandbox.Spec{Isolation: w.Name}.Normalize(sandbox.Offer{}),
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), instanceLimit)
		defer cancel()
		_, serr := b.Stop(clean, sb.ID)
		err := errors.Join(serr, b.Remove(clean, sb.ID), b.Close())
		if err != nil && v.Error == "" {
			v = unusable(fmt.Errorf("the sandbox could not be removed: %w", err))
		}
	}()
	began := time.Now()
	enforced, err := b.Start(ctx, sb)
	if err != nil {
		return unusable(err)
	}
	if err := runIn(ctx, b, sb.ID); err != nil {
		return unusable(err)
	}
	return judge(enforced, time.Since(began))
}

// unusable is the verdict on a wall that failed.
func unusable(err error) Verdict {
	v := Verdict{State: Missing, Error: err.Error()}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		v.Hint = e.Hint
	}
	return v
}

// judge reads off an instance's own promises what the wall is worth.
func judge(enforced []sandbox.Enforcement, took time.Duration) Verdict {
	v := Verdict{State: OK, Keeps: enforced, Millis: max(1, took.Milliseconds())}
	for _, e := range enforced {
		if !e.Enforced {
			v.State = Weaker
			v.Weaker = append(v.Weaker, Weakness{Promise: e.Promise, Reason: e.Reason})
		}
	}
	return v
}

// weakenedBy adds to a verdict what a wall makes do without in silence: its
// promises hold, by fewer means.
func weakenedBy(v Verdict, lines []Line, wall string) Verdict {
	if !v.Works() || wall != sandbox.WallProcess {
		return v
	}
	for _, l := range lines {
		if l.ID == "landlock" && l.State != OK {
			v.State = Weaker
			v.Weaker = append(v.Weaker, Weakness{Promise: "isolation", Reason: "Landlock: " + l.Found})
		}
	}
	return v
}

// runIn runs a command in an instance to its end.
func runIn(ctx context.Context, b Backend, id string) error {
	g := agent.New(func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, id, sandbox.GuestPort) })
	defer g.Close()
	exit, err := g.Run(ctx, &guestv1.Command{Argv: []string{program}, TimeoutMs: uint64(instanceLimit.Milliseconds())}, nil)
	switch {
	case err != nil:
		return fmt.Errorf("run a command in a sandbox: %w", err)
	case exit.GetReason() != guestv1.Reason_REASON_EXITED || exit.GetCode() != 0:
		return fmt.Errorf("run a command in a sandbox: %s ended with %d (%s) %s", program, exit.GetCode(), exit.GetReason(), exit.GetError())
	}
	return nil
}
