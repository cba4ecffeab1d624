package cli

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// asker asks about changes on the terminal.
type asker struct {
	a   *app
	all bool // everything from here on is wanted
}

// ask returns whether one change is wanted. An error means that the user
// wants none at all, or that nobody is there to answer.
func (q *asker) ask(ctx context.Context, it *workspace.Item) (bool, error) {
	if q.all {
		return true, nil
	}
	for {
		answer, err := q.prompt(ctx, escape(itemText(it))+"\ntake it? [y,n,a,d,q,?] ")
		if err != nil {
			return false, err
		}
		switch strings.TrimSpace(strings.ToLower(answer)) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		case "a", "all":
			q.all = true
			return true, nil
		case "q", "quit":
			return false, sandbox.Errorf(sandbox.Denied, "left without a change")
		case "d", "diff":
			if err := q.show(ctx, it); err != nil {
				return false, err
			}
		default:
			_, err := io.WriteString(q.a.env.Stderr, `y  take it         n  leave it
a  take it, and all that follow
d  show the change
q  leave all, also those that were answered y
`)
			if err != nil {
				return false, err
			}
		}
	}
}

// show writes the patch of one change to the terminal, of the very bytes that
// would be written: the sandbox may have others by now.
func (q *asker) show(ctx context.Context, it *workspace.Item) error {
	w, done := q.a.patchWriter(q.a.env.Stderr, false)
	if err := it.WritePatch(ctx, w, workspace.PatchOptions{}); err != nil {
		return err
	}
	return done()
}

// prompt asks one question. A read of a terminal can't be called off: where
// ctx ends first, it is left behind for the process to end.
func (q *asker) prompt(ctx context.Context, question string) (string, error) {
	type reply struct {
		line string
		err  error
	}
	got := make(chan reply, 1)
	go func() {
		line, err := promptLine(q.a.env.Stdin, q.a.env.Stderr, question)
		got <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-got:
		if errors.Is(r.err, io.EOF) {
			return "", sandbox.Errorf(sandbox.Denied, "no answer: left without a change")
		}
		return r.line, r.err
	}
}
