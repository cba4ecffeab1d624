package changes

import (
	"context"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// asker asks about changes on the terminal.
type asker struct {
	r   *Reviewer
	all bool // everything from here on is wanted
}

// ask returns whether one change is wanted. An error means that the user
// wants none at all, or that nobody is there to answer.
func (q *asker) ask(ctx context.Context, it *workspace.Item) (bool, error) {
	if q.all {
		return true, nil
	}
	for {
		answer, err := q.r.Prompt(ctx, console.Escape(itemText(it))+"\ntake it? [y,n,a,d,q,?] ")
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
			_, err := io.WriteString(q.r.Stderr, `y  take it         n  leave it
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
	w, done := q.r.patchWriter(q.r.Stderr, false)
	if err := it.WritePatch(ctx, w, workspace.PatchOptions{}); err != nil {
		return err
	}
	return done()
}
