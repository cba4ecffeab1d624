package actor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
)

const (
	// Tag marks the commands of pods among those of a sandbox.
	Tag = "pod"
	by  = "pod" // who signals

	longPoll = 20 * time.Second
	maxPiece = 256 << 10 // bytes of output that become one entry
	maxError = 4 << 10   // bytes of the errors that are shown
	// breather is between two looks at a command's output: one that prints byte by byte makes no entry of each.
	breather   = 20 * time.Millisecond
	halfLetter = 500 * time.Millisecond
	fullDisk   = time.Second
	firstTry   = time.Millisecond
	lastTry    = 2 * time.Second
	endTime    = 10 * time.Second // to end a command that was cancelled
)

// Place stands for what a pod is given in its command.
const Place = "{}"

// Run starts a turn. Its error is a *wire.Error.
func (a *Actor) run(ctx context.Context, input []wire.Segment) error {
	if len(a.o.Program.Command) == 0 {
		return &wire.Error{Code: wire.CodeInvalidRequest, Message: "it runs nothing of its own"}
	}
	a.mu.Lock()
	if a.turn != nil {
		a.mu.Unlock()
		return &wire.Error{Code: wire.CodeAlreadyRunning, Message: "a turn is under way"}
	}
	t := &turn{n: a.last + 1, id: "pod" + rand.Text()}
	launched := make(chan error, 1)
	a.begin(t, func(ctx context.Context) { a.play(ctx, t, input, launched) })
	a.mu.Unlock()
	select {
	case err := <-launched:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// play starts a turn's command, and sees it to its end.
func (a *Actor) play(ctx context.Context, t *turn, input []wire.Segment, launched chan<- error) {
	refuse := func(err error) {
		a.mu.Lock()
		a.turn = nil
		a.mu.Unlock()
		launched <- &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
	}
	if err := a.o.Ready(ctx); err != nil {
		refuse(err)
		return
	}
	text := a.notes() + plain(input)
	if err := a.note(transcript.Entry{Kind: transcript.User, Turn: t.n, Command: t.id, Segments: input}); err != nil {
		refuse(err)
		return
	}
	stdin, err := a.launch(ctx, t, text)
	if err != nil {
		launched <- &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
		a.end(t, transcript.Entry{Result: transcript.Failed, Text: err.Error()})
		return
	}
	a.tell(
		said{wire.EventUserMessage, wire.UserMessage{Segments: input}}, said{wire.EventInvokeStart, wire.InvokeStart{Kind: wire.InvokeUserSend}},
		said{wire.EventTurnStart, wire.Turn{Turn: t.n}}, said{wire.EventStatus, wire.Status{Status: wire.StatusRunning}},
	)
	launched <- nil
	if stdin {
		a.tasks.Go(func() { a.give(ctx, t, text) })
	}
	a.follow(ctx, t)
}

// launch starts the command, and reports whether it reads what it is given from its standard input.
func (a *Actor) launch(ctx context.Context, t *turn, text string) (stdin bool, err error) {
	argv := make([]string, len(a.o.Program.Command))
	stdin = true
	for i, arg := range a.o.Program.Command {
		if argv[i] = arg; arg == Place {
			argv[i], stdin = text, false
		}
	}
	cmd := &guestv1.Command{Argv: argv, Cwd: a.o.Program.Cwd, Stdin: stdin, Tag: Tag, OrphanGraceMs: math.MaxUint64}
	var exit *guestv1.Exit
	err = a.retry(ctx, func() (err error) {
		exit, err = a.o.Guest.Launch(ctx, t.id, cmd)
		return err
	})
	switch {
	case errors.Is(err, agent.ErrUnknown):
		return false, errors.New("the command was not started: its sandbox has ended")
	case err != nil:
		return false, fmt.Errorf("the command was not started: %w", err)
	case exit != nil:
		return false, fmt.Errorf("the command can't be started: %.400s", strings.ToValidUTF8(exit.GetError(), "\uFFFD"))
	}
	return stdin, nil
}

// retry calls the guest until it answers, its sandbox is gone, or ctx ends.
func (a *Actor) retry(ctx context.Context, call func() error) error {
	for delay := firstTry; ; delay = min(2*delay, lastTry) {
		err := call()
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case err == nil || !errors.Is(err, agent.ErrBroken):
			return err
		}
		if runs, rerr := a.o.Runs(ctx); rerr == nil && !runs {
			return agent.ErrUnknown
		}
		if !pause(ctx, delay) {
			return context.Cause(ctx)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// give writes what a turn is given to its command's input, and ends that. One that does not read it does without.
func (a *Actor) give(ctx context.Context, t *turn, text string) {
	data := []byte(text)
	for at := 0; ; {
		piece := data[at:min(len(data), at+maxPiece)]
		last := at+len(piece) == len(data)
		err := a.retry(ctx, func() error {
			_, err := a.o.Guest.Input(ctx, t.id, int64(at), piece, last)
			return err
		})
		if err != nil && !errors.Is(err, agent.ErrEnded) {
			a.o.Trace.Info("give a pod its task", "pod", a.o.Name, "error", err)
		}
		if at += len(piece); err != nil || last {
			return
		}
	}
}

// follow takes what a turn's command prints into the transcript, until its end.
func (a *Actor) follow(ctx context.Context, t *turn) {
	errs := make(chan failing, 1)
	a.tasks.Go(func() { errs <- a.errors(ctx, t) })
	err := a.output(ctx, t)
	f := <-errs
	if a.ctx.Err() != nil {
		return // the next daemon goes on
	}
	a.mu.Lock()
	undone := t.undone
	a.mu.Unlock()
	e := transcript.Entry{Result: wire.RunFinished}
	switch {
	case undone:
		e.Result = wire.RunRolledBack
	case err != nil || f.exit == nil:
		e.Result, e.Text = transcript.Lost, "its command ended with its sandbox"
		if err != nil && !errors.Is(err, agent.ErrUnknown) {
			e.Text = err.Error()
		}
	default:
		code := int(f.exit.GetCode())
		if e.Code = &code; code != 0 {
			e.Result, e.Text = transcript.Failed, fmt.Sprintf("its command ended with %d", code)
			if tail := strings.TrimSpace(strings.ToValidUTF8(string(f.tail), "\uFFFD")); tail != "" {
				e.Text += ": " + tail
			}
		}
	}
	a.end(t, e)
}

// output takes what a command prints.
func (a *Actor) output(ctx context.Context, t *turn) error {
	for {
		var o agent.Output
		err := a.retry(ctx, func() (err error) {
			o, err = a.o.Guest.Read(ctx, t.id, agent.Read{Offset: t.from, Release: t.from, Max: maxPiece, Wait: longPoll})
			return err
		})
		if err != nil {
			return err
		}
		data := o.Data
		if !o.Ended {
			data = whole(data)
		}
		to := o.Offset + int64(len(data))
		if o.Offset > t.from {
			data = fmt.Appendf(nil, "[%d bytes are lost]\n%s", o.Offset-t.from, data)
		}
		if len(data) > 0 {
			text := strings.ToValidUTF8(string(data), "\uFFFD")
			if err := a.note(transcript.Entry{Kind: transcript.Assistant, Turn: t.n, Text: text, To: to}, said{wire.EventTextDelta, wire.TextDelta{Text: text}}); err != nil {
				a.o.Trace.Warn("write what a pod says", "pod", a.o.Name, "error", err)
				if !pause(ctx, fullDisk) { // the command is held back meanwhile
					return context.Cause(ctx)
				}
				continue
			}
			t.from = to
		}
		if o.Ended {
			return nil
		}
		wait := breather
		if len(data) == 0 && len(o.Data) > 0 { // half a letter
			wait = halfLetter
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// whole is data without the beginning of a letter at its end.
func whole(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-i:]) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

// failing is the end of a command, and the newest of its errors.
type failing struct {
	tail []byte
	exit *guestv1.Exit // nil: it is not known
}

// errors reads a command's errors, and learns of its end.
func (a *Actor) errors(ctx context.Context, t *turn) (f failing) {
	for from := int64(0); ; {
		var o agent.Output
		err := a.retry(ctx, func() (err error) {
			o, err = a.o.Guest.Read(ctx, t.id, agent.Read{Stderr: true, Offset: from, Release: from, Max: maxPiece, Wait: longPoll})
			return err
		})
		if err != nil {
			return f
		}
		f.tail = append(f.tail, o.Data...)
		f.tail = f.tail[max(0, len(f.tail)-maxError):]
		from = o.Offset + int64(len(o.Data))
		if o.Ended && o.Exit != nil {
			f.exit = o.Exit
			return f
		}
		if !pause(ctx, breather) {
			return f
		}
	}
}

// end writes that a turn is over, and tells it.
func (a *Actor) end(t *turn, e transcript.Entry) {
	e.Kind, e.Turn = transcript.End, t.n
	result := e.Result
	var events []said
	if result == transcript.Failed || result == transcript.Lost {
		result = wire.RunFinished
		events = append(events, said{wire.EventError, wire.Error{Code: wire.CodeInternal, Message: e.Text}})
	}
	events = append(events, said{wire.EventRunEnd, wire.RunEnd{Result: result}}, said{wire.EventTurnEnd, wire.Turn{Turn: t.n}}, said{wire.EventStatus, wire.Status{Status: wire.StatusIdle}})
	a.mu.Lock()
	a.turn = nil // who hears of it may send the next one
	err := a.noteLocked(e, events)
	a.mu.Unlock()
	if err != nil {
		a.o.Trace.Error("write that a pod's turn is over", "pod", a.o.Name, "error", err)
	}
	up := wire.PodEvent{Kind: wire.PodTurnEnded, PodName: a.o.Name}
	if e.Result == transcript.Failed || e.Result == transcript.Lost {
		up.Kind, up.Message = wire.PodErrored, e.Text
	}
	a.o.Event(up)
}

// discard ends the turn that is under way, and returns once nothing of its command is left.
func (a *Actor) discard(ctx context.Context) error {
	a.mu.Lock()
	t := a.turn
	if t != nil {
		t.undone = true
	}
	a.mu.Unlock()
	if t == nil {
		return &wire.Error{Code: wire.CodeNotRunning, Message: "no turn is under way"}
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err := a.retry(ctx, func() error { return a.o.Guest.Signal(ctx, t.id, int(unix.SIGKILL), true, by) })
	if err != nil && !errors.Is(err, agent.ErrEnded) && !errors.Is(err, agent.ErrUnknown) {
		return &wire.Error{Code: wire.CodeInternal, Message: "the command was not ended: " + err.Error()}
	}
	return nil
}

// notes are what was said to the pod since its last turn, as a text that comes before what the next one is given.
func (a *Actor) notes() string {
	var newest []string
	left := 0
	_, _, err := a.o.Log.Read(0, func(_ int, e transcript.Entry) error {
		switch e.Kind {
		case transcript.User:
			newest, left = nil, 0
		case transcript.Note:
			if newest = append(newest, e.Text); len(newest) > maxNotes {
				newest = newest[1:]
				left++
			}
		}
		return nil
	})
	if err != nil || len(newest) == 0 {
		return ""
	}
	if left > 0 {
		newest = slices.Insert(newest, 0, fmt.Sprintf("(%d earlier lines are left out.)", left))
	}
	return strings.Join(newest, "\n") + "\n\n"
}

// maxNotes bounds what stands before a task, in lines: a pod's own may be noisy.
const maxNotes = 50

// plain is what segments are in one text.
func plain(input []wire.Segment) string {
	var parts []string
	for _, s := range input {
		switch s.Kind {
		case wire.SegmentText, wire.SegmentPaste:
			parts = append(parts, s.Content)
		case wire.SegmentFileRef:
			parts = append(parts, "@"+s.Path)
		case wire.SegmentKnowledgeRef:
			parts = append(parts, "#"+s.Slug)
		case wire.SegmentWorkflowInvoke:
			parts = append(parts, "/"+s.Slug)
		}
	}
	return strings.Join(parts, "\n")
}
