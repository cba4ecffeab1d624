package action

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

const (
	shellProgram   = "/bin/sh"
	workspace      = "/workspace"
	defaultTimeout = 30 * time.Second
	maxTimeout     = 24 * time.Hour
	timedOutCode   = 124 // as timeout(1) has it

	// Of each stream of a command, at most maxOutput bytes of the beginning and maxTail of the
	// end are kept. They fit into a reply, whatever they are: a byte takes six in JSON at most.
	maxOutput = 1 << 20
	maxTail   = 256 << 10
)

// execRequest may name its action, too.
type execRequest struct {
	Action string `json:"action"`
	action.ExecRequest
}

// exec runs a command and waits for its end.
func (c *call) exec(q *execRequest) (any, error) {
	timeout := time.Duration(q.TimeoutSeconds) * time.Second
	switch {
	case q.Command == "":
		return nil, errors.New("the command is empty")
	case q.TimeoutSeconds < 0 || q.TimeoutSeconds > int(maxTimeout/time.Second):
		return nil, fmt.Errorf("timeout_seconds is %d: it has to be from 1 to %d", q.TimeoutSeconds, int(maxTimeout/time.Second))
	case timeout == 0:
		timeout = defaultTimeout
	}
	_, dir, err := c.place(q.CWD)
	if err != nil {
		return nil, err
	}
	cmd, f, err := c.s.opts.Engine.StartFollowed(newID("exec"), process.Spec{
		Argv: []string{shellProgram, "-c", q.Command}, Env: q.Env, Cwd: dir, Timeout: timeout,
	})
	if err != nil {
		return nil, err
	}
	out, errs := excerpt.New(maxOutput, maxTail), excerpt.New(maxOutput, maxTail)
	ctx, stop := c.present()
	defer stop()
	if err := gather(ctx, cmd, f, [2]sink{ends{out}, ends{errs}}); err != nil {
		return nil, err
	}
	exit, _ := cmd.Exit()
	if exit.Reason == process.NotStarted {
		return nil, errors.New(exit.Error)
	}
	if err := c.take(kept(out) + kept(errs)); err != nil {
		return nil, err
	}
	return execReply(exit, timeout, out, errs), nil
}

// execReply says how a command ended, and what of its output is not in the reply.
func execReply(exit process.Exit, timeout time.Duration, out, errs *excerpt.Keeper) *action.ExecReply {
	r := &action.ExecReply{ExitCode: exit.Code, DurationMS: exit.Duration.Milliseconds()}
	var notes []string
	for _, s := range []struct {
		name string
		kept *excerpt.Keeper
		text *string
	}{{"stdout", out, &r.Stdout}, {"stderr", errs, &r.Stderr}} {
		raw, leftOut := s.kept.Excerpt().Whole()
		if *s.text, _ = fit(raw, math.MaxInt); leftOut > 0 {
			r.Truncated = true
			notes = append(notes, fmt.Sprintf("%s had %d bytes, of which %d are here: its beginning and its end", s.name, s.kept.All(), s.kept.All()-leftOut))
		}
	}
	switch exit.Reason {
	case process.TimedOut:
		r.ExitCode = timedOutCode
		notes = append(notes, fmt.Sprintf("the command was ended after %v, with all that it had started", timeout))
	case process.OutOfMemory:
		notes = append(notes, "the command was ended for want of memory")
	}
	if exit.Error != "" {
		notes = append(notes, exit.Error)
	}
	for _, note := range notes {
		if n := len(r.Stderr); n > 0 && r.Stderr[n-1] != '\n' {
			r.Stderr += "\n"
		}
		r.Stderr += "carboy: " + note + "\n"
	}
	return r
}

// kept is how many bytes are.
func kept(k *excerpt.Keeper) int {
	e := k.Excerpt()
	return len(e.Head) + len(e.Tail)
}

// ends is a sink that keeps the beginning and the end of a stream.
type ends struct{ *excerpt.Keeper }

func (e ends) add(p []byte) { _, _ = e.Write(p) } // never fails

func (e ends) lost(n int64) { e.Skip(n) }

// sink takes a stream of a command's.
type sink interface {
	add(p []byte) // p is the caller's again after
	lost(n int64) // bytes that are gone
}

// gather reads all that a command writes until it has ended, and closes the follower. The
// command goes on where ctx ends first.
func gather(ctx context.Context, cmd *process.Command, f *process.Follower, into [2]sink) error {
	defer f.Close()
	buf := make([]byte, 32<<10)
	for {
		ev, state := f.Next(buf)
		done := cmd.Done()
		switch state {
		case journal.Ready:
			if ev.Data == nil {
				into[ev.Stream].lost(ev.To - ev.Offset)
			} else {
				into[ev.Stream].add(ev.Data)
			}
			continue
		case journal.Idle:
			done = nil // there is output to come first
		case journal.Ended:
		}
		select {
		case <-done:
			return nil
		case <-f.Wake():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// place returns the sandbox's user, and the directory that p means: absolute, or below
// where commands begin.
func (c *call) place(p string) (a account.Account, dir string, err error) {
	if a, err = c.s.opts.User(); err != nil {
		return a, "", err
	}
	begin := c.s.opts.Dir()
	err = c.s.opts.Files.Act(c.ctx, a, func() error {
		if isDir(workspace) {
			begin = workspace
		}
		return nil
	})
	if err != nil {
		return a, "", err
	}
	if p == "" {
		p = "."
	}
	if dir, err = files.Resolve(p, a.Home, begin); err != nil {
		return a, "", fmt.Errorf("path %.128q: %w", p, err)
	}
	return a, dir, nil
}

// sizeOf checks a terminal's size; 0 is the usual.
func sizeOf(cols, rows int) (jail.Size, error) {
	const most = 1000
	if cols == 0 {
		cols = 120
	}
	if rows == 0 {
		rows = 30
	}
	if cols < 1 || rows < 1 || cols > most || rows > most {
		return jail.Size{}, fmt.Errorf("a terminal of %d columns and %d rows: both have to be from 1 to %d", cols, rows, most)
	}
	return jail.Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}
