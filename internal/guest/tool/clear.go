package tool

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// clear removes what is at a path.
func (c *call) clear(q *guest.ClearRequest) (res tools.Failure, err error) {
	rel, abs, err := c.file(q.Path)
	if err != nil {
		return res, err
	}
	err = c.do(func(root int) error {
		dir, err := beneath.OpenNoLinks(root, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return explain(abs, err)
		}
		defer unix.Close(dir)
		name := path.Base(rel)
		again := q.Keep && kindOf(dir, name) == unix.DT_DIR
		if err := beneath.Remove(c.ctx, dir, name); err != nil {
			return explain(abs, err)
		}
		if !again {
			return nil
		}
		if err := unix.Mkdirat(dir, name, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return explain(abs, err)
		}
		return nil
	})
	res.OK = err == nil
	return res, err
}
