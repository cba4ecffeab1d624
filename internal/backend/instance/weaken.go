package instance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// What a weakened binary has of the agent in the instance's own tree: its socket,
// and a copy of its configuration.
const (
	DirShared  = "shown"
	fileConfig = "config.json"
)

// socketDir is the directory that the agent's socket has its name in: the
// instance's own.
func socketDir(dir *beneath.Dir) (at *beneath.Dir, done func(), err error) {
	if !weak.On(weak.ControlShared) {
		return dir, func() {}, nil
	}
	if err := dir.Mkdir(DirShared, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, err
	}
	if at, err = dir.OpenDir(DirShared); err != nil {
		return nil, nil, err
	}
	return at, func() { at.Close() }, nil
}

// shareConfig writes the copy, without the key: that the agent has it from its
// descriptor alone is another part of the defence.
func shareConfig(dir *beneath.Dir, cfg *control.Config) error {
	if !weak.On(weak.ControlShared) {
		return nil
	}
	shown := *cfg
	shown.Key = nil
	raw, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	return dir.WriteFile(fileConfig, raw, 0o600)
}

// shareControl shows both in the instance. A native one's control groups cover the place where
// it is entered: there it is among them.
func (c *composer) shareControl() error {
	if !weak.On(weak.ControlShared) {
		return nil
	}
	at := filepath.Join(DirMounts, DirShared)
	if err := mkdir(at); err != nil {
		return err
	}
	if err := c.bindMapped(DirShared, at); err != nil {
		return err
	}
	if len(c.layout.Shown) > 0 {
		among := filepath.Join(DirMounts, MountGroups, DirShared)
		return errors.Join(mkdir(among), bind(at, among))
	}
	rel := GuestControl[1:]
	if err := c.asGuest(func() error { return c.mkdirInRoot(rel) }); err != nil || !c.layout.Native {
		return err
	}
	return c.bindInRoot(at, rel)
}
