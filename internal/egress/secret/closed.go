package secret

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Closed is a store that can't be opened: whatever is asked of it fails, and
// says why.
type Closed struct {
	Dir string // where it is
	Why error
}

func (c Closed) err() error {
	e := sandbox.Errorf(sandbox.Unavailable, "secrets: the store can't be opened").WithHint(sandbox.LogHint)
	if known, ok := errors.AsType[*sandbox.Error](c.Why); ok {
		e = sandbox.Errorf(sandbox.Unavailable, "secrets: %s", known.Msg).WithHint("%s", known.Hint)
	}
	e.Err = c.Why
	return e
}

// Check fails where any secret is asked for.
func (c Closed) Check(_ context.Context, _ string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return c.err()
}

// Put fails.
func (c Closed) Put(context.Context, string, string, Source) (Info, error) { return Info{}, c.err() }

// PutFor fails.
func (c Closed) PutFor(context.Context, string, string, string, Source) (Info, error) {
	return Info{}, c.err()
}

// Rotate fails.
func (c Closed) Rotate(context.Context, string, string, *Source) (Info, error) {
	return Info{}, c.err()
}

// Remove fails.
func (c Closed) Remove(context.Context, string, string, bool) error { return c.err() }

// List fails.
func (c Closed) List(context.Context, string) ([]Info, error) { return nil, c.err() }

// Value fails.
func (c Closed) Value(context.Context, string, string, string) (Minted, error) {
	return Minted{}, c.err()
}

// ForRemote fails.
func (c Closed) ForRemote(context.Context, string, string, string) (Minted, error) {
	return Minted{}, c.err()
}

// Known fails where any secret is asked for.
func (c Closed) Known(ctx context.Context, owner, _ string, names []string) (map[string]Value, error) {
	return nil, c.Check(ctx, owner, names)
}

// Sandboxes returns none: what is kept can't be told.
func (c Closed) Sandboxes() ([]string, error) { return nil, nil }

// RemoveFor deletes what is kept for a sandbox, which needs no key.
func (c Closed) RemoveFor(_ context.Context, sandboxID string) error {
	place, err := sandboxDir(sandboxID)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(c.Dir, place)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
