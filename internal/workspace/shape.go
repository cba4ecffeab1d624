package workspace

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The changes of a running view are read name by name. What is renamed meanwhile, from where it is still to be read to
// where that was done, is in none of its places: an apply would delete in the base what the sandbox shows, and has
// from there alone. So the stream for one is held to the shape that the view had in one moment.

// Shape sums where in an upper layer directories of the base are, and where something hides what the base has: of a view that
// is whole, and in which nothing changes meanwhile. It is ErrLoose where a renamed directory is not whole. The arguments are
// those of OverlayUpper.
func Shape(ctx context.Context, upper *os.File, base *Below, reader *rights.Reader) (string, error) {
	out, err := newStreamWriter(io.Discard, Header{Since: time.Unix(1, 0)})
	if err != nil {
		return "", err
	}
	p := &producer{ctx: ctx, out: out, filter: newFilter(sandbox.ChangesFilter{}, nil), whole: true, aside: true, shape: &summer{sha256.New()}}
	if err := (overlaySource{upper, base, reader}).write(p); err != nil {
		return "", fmt.Errorf("read the shape of a view: %w", err)
	}
	return p.shape.sum().String(), nil
}

// shaped adds what an upper layer has at a path: a directory of the base, or what hides something of it. What is new, and what
// is in a directory that hides the base already, may come and go.
func (p *producer) shaped(at place, rel string, origin Origin, hides bool) {
	hides = hides && !at.hidden
	if p.shape == nil || origin.IsZero() && !hides {
		return
	}
	p.shape.text(rel)
	p.shape.h.Write(origin[:])
	p.shape.flag(hides)
}
