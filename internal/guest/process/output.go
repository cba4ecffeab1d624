package process

import (
	"context"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// Output returns what a stream has from an offset on; see journal.Journal.Read. Nothing
// is kept for who reads by it: of a command that nobody follows the oldest output goes.
func (c *Command) Output(ctx context.Context, s journal.Stream, from int64, size int) (journal.Event, journal.State) {
	return c.out.Read(ctx, s, from, from, size)
}

// Written returns how many bytes a stream had so far.
func (c *Command) Written(s journal.Stream) int64 { return c.out.Bytes(s) }

// Started returns when the command was started.
func (c *Command) Started() time.Time { return c.started }
