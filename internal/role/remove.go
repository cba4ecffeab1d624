package role

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// roleRemove is root of a user namespace over what instances made.
const roleRemove = "carboy-box-remove"

// Delete deletes a directory of ours, if it is there. Nothing is mounted below it in
// this namespace, and no link is followed. Without root, what instances made
// belongs to subordinate ids: a role that is root over them deletes it.
func (r *Runner) Delete(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var err error
	if r.Rootless() {
		err = r.Run(ctx, roleRemove, strings.NewReader(dir), io.Discard)
	}
	if err = errors.Join(err, beneath.RemoveAll(context.Background(), dir)); err != nil {
		return fmt.Errorf("delete %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// removeMain deletes what is in the directory whose path it reads.
func removeMain(in io.Reader) error {
	dir, err := io.ReadAll(io.LimitReader(in, 1<<16))
	if err != nil {
		return err
	}
	if err := BecomeRoot(); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, beneath.RemoveAll(context.Background(), filepath.Join(string(dir), e.Name())))
	}
	return err
}
