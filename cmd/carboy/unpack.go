package main

import (
	"context"
	"io"
	"os"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

// unpacker unpacks and removes layers by a wall's means where the caller is
// not root: their files belong to its subordinate ids then.
type unpacker struct {
	wall *gvisor.Backend // set before anything is unpacked
}

func (u *unpacker) unpack() func(context.Context, io.Reader, string) (layer.Result, error) {
	if os.Geteuid() == 0 {
		return nil
	}
	return func(ctx context.Context, r io.Reader, dir string) (layer.Result, error) {
		return u.wall.Unpack(ctx, r, dir)
	}
}

func (u *unpacker) remove() func(string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return func(dir string) error {
		if u.wall == nil { // what a store sweeps when it is opened
			return os.RemoveAll(dir)
		}
		return u.wall.Delete(dir)
	}
}

// removeSaved removes snapshots: nothing does before the walls are there.
func (u *unpacker) removeSaved() func(string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return func(dir string) error { return u.wall.Delete(dir) }
}
