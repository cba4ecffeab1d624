package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Image is an image that is open for reading.
type Image struct {
	FS   *ext4.FS
	file *os.File
}

// Open opens the image in a file. What is no file, or no file system of the ext family, is a
// *sandbox.Error: "failed to inspect workspace disk path".
func Open(image string) (*Image, error) {
	f, size, err := openRegular(image)
	if err != nil {
		return nil, inspectError(image, err)
	}
	im := &Image{file: f}
	if im.FS, err = ext4.Open(f, size); err != nil {
		_ = f.Close() // it was read only
		return nil, inspectError(image, err)
	}
	return im, nil
}

// Close closes the file.
func (im *Image) Close() error { return im.file.Close() }

// openRegular opens a regular file, and does not wait where it is a pipe.
func openRegular(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file", fs.ErrInvalid)
	}
	if err != nil {
		_ = f.Close() // it was read only
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// find returns the inode of a path, and the path without what means nothing.
func (im *Image) find(guest string) (string, *ext4.Inode, error) {
	if !strings.HasPrefix(guest, "/") || slices.Contains(strings.Split(guest, "/"), "..") {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "path %q: it must begin with a slash and have no part ..", guest)
	}
	guest = path.Clean(guest)
	i, err := im.FS.Walk(guest)
	if err != nil {
		return "", nil, inspectError(guest, err)
	}
	return guest, i, nil
}

// inspectError is err as it is told of a path.
func inspectError(path string, err error) error {
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, ext4.ErrNotDirectory)
	if _, ofHost := errors.AsType[*fs.PathError](err); missing && !ofHost {
		return &sandbox.Error{Kind: sandbox.NotFound, Msg: "workspace disk path does not exist: " + path, Err: err}
	}
	return pathError("failed to inspect workspace disk path", path, err)
}

// pathError begins with words that callers know, then has the path and the cause. The end of a
// context stays what it is.
func pathError(words, path string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	kind := sandbox.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = sandbox.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = sandbox.Denied
	case errors.Is(err, ext4.ErrUnsupported):
		kind = sandbox.Unsupported
	case errors.Is(err, ext4.ErrDamaged), errors.Is(err, ext4.ErrLinks), errors.Is(err, fs.ErrInvalid):
		kind = sandbox.Invalid
	}
	return sandbox.Errorf(kind, "%s: %s: %w", words, path, err)
}
