package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Set changes the limits of a group that is there, and of its commands' part
// where commands is not the zero value; what is zero in l stays. A limit below
// what is used is Conflict, by the kernel's own word in version 1: version 2
// would end processes for it, so a caller looks first. After an error some limits
// may be changed and others not: Set again with what is to hold.
//
// The group and its part are never narrower outside than inside for longer than
// it takes: what is raised is raised outside first, what is lowered inside first.
func (g *Group) Set(l, commands Limits) error {
	for _, one := range []Limits{l, commands} {
		if err := one.Validate(); err != nil {
			return err
		}
	}
	for _, t := range g.host.trees {
		dir, err := g.open(t)
		if t.absent(err) {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.NotFound, "cgroup %s: not found", g.name)
		}
		if err != nil {
			return fmt.Errorf("open group %s: %w", g.name, err)
		}
		err = t.resize(dir, l, commands)
		dir.Close()
		if err != nil {
			return fmt.Errorf("limit group %s: %w", g.name, err)
		}
	}
	return nil
}

// resize sets the limits of an instance's directory in one tree, and those of its
// commands' part. Whichever way each goes, twice is enough: what an outer limit
// was in the way of passes the second time.
func (t *hierarchy) resize(dir *os.File, l, commands Limits) error {
	if t.version == 1 && commands.PIDs > 0 {
		commands.PIDs += forkers
	}
	part := func() error {
		if commands == (Limits{}) {
			return nil
		}
		return t.reset(dir, commandsGroup, commands)
	}
	inner := part()
	if err := t.reset(dir, ".", l); err != nil {
		return err
	}
	if inner == nil {
		return nil
	}
	return part()
}

// reset writes limits over those that there are. A limit of memory can't be above
// the one with swap, nor that below it, so that each is tried once more when the
// other was written.
func (t *hierarchy) reset(dir *os.File, name string, l Limits) error {
	write := func(s setting, v string) error {
		err := writeFile(dir, name+"/"+s.file, v)
		switch {
		case s.optional && errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, unix.EBUSY):
			return sandbox.Errorf(sandbox.Conflict, "%s can't become %s: more than that is used", s.file, v)
		case err != nil:
			return fmt.Errorf("set %s to %s: %w", s.file, v, err)
		}
		return nil
	}
	type one struct {
		s setting
		v string
	}
	var again []one
	_ = t.each(l, func(s setting, v string) error {
		if write(s, v) != nil {
			again = append(again, one{s, v})
		}
		return nil
	})
	for _, o := range again {
		if err := write(o.s, o.v); err != nil {
			return err
		}
	}
	return nil
}
