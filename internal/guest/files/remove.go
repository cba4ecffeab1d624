package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC

// removeAll deletes what is at p, following no link. It runs on a worker, and
// stops at the first thing that it can't delete.
func removeAll(ctx context.Context, p string) error {
	if p == "/" {
		return faultf(connect.CodeInvalidArgument, "the root directory can't be removed")
	}
	parent, base := path.Split(p)
	fd, err := unix.Open(parent, openDir, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(fd)
	if err := beneath.Remove(ctx, fd, base); err != nil {
		return fmt.Errorf("remove %s: %w", p, err)
	}
	return nil
}
