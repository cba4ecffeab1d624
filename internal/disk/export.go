package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// exportStep is how much is copied between two looks at the context, in bytes.
const exportStep = 16 << 20

// Export copies the image of a file to a new file, which gets its name once it is whole and on the
// disk. Holes stay holes. progress, where it is not nil, is told how many bytes of how many are
// behind it, from one goroutine. Where the copy ends early, by an error or by its context, nothing
// is left.
//
// An output that is there is "output_path already exists", and stays as it is; a file that is no
// file system of the ext family is not copied. The output's mode is 0600.
func Export(ctx context.Context, image, output string, progress func(done, total int64)) (*api.DiskExport, error) {
	if _, err := os.Lstat(output); err == nil {
		return nil, Exists(output)
	}
	im, err := Open(image)
	if err != nil {
		return nil, err
	}
	defer im.Close()
	size, err := im.copyTo(ctx, output, progress)
	if errors.Is(err, fs.ErrExist) {
		return nil, Exists(output)
	}
	if err != nil {
		return nil, exportError(output, err)
	}
	return &api.DiskExport{OutputPath: output, DiskFormat: "ext4", BytesWritten: size}, nil
}

// Exists is the Conflict of an output that is there already: nothing is written over.
func Exists(output string) error {
	return sandbox.Errorf(sandbox.Conflict, "output_path already exists: %s", output).WithHint("choose another name")
}

func exportError(output string, err error) error {
	if full := sandbox.DiskError(err, "the disk of "+output); full != err {
		return full
	}
	return pathError("failed to export workspace disk", output, err)
}

// copyTo copies the image's file, and returns its length.
func (im *Image) copyTo(ctx context.Context, output string, progress func(done, total int64)) (int64, error) {
	at, err := os.OpenFile(filepath.Dir(output), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, err
	}
	dir := beneath.In(at)
	defer dir.Close()
	st, err := im.file.Stat()
	if err != nil {
		return 0, err
	}
	to, err := durable.Create(dir, durable.Options{Keep: true})
	if err != nil {
		return 0, err
	}
	defer to.Discard()
	if err := to.Truncate(st.Size()); err != nil {
		return 0, err
	}
	c := copying{from: im.file, to: to.File, size: st.Size(), progress: progress}
	if err := c.run(ctx); err != nil {
		return 0, err
	}
	return st.Size(), to.Commit(dir, filepath.Base(output))
}

// copying copies the parts of a file that are no holes.
type copying struct {
	from, to *os.File
	size     int64
	progress func(done, total int64)
}

func (c *copying) run(ctx context.Context) error {
	for at := int64(0); at < c.size; {
		data, err := unix.Seek(int(c.from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("seek data: %w", err)
		}
		hole, err := unix.Seek(int(c.from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("seek hole: %w", err)
		}
		for hole = min(hole, c.size); data < hole; data = at {
			if err := ctx.Err(); err != nil {
				return err
			}
			at = min(data+exportStep, hole)
			if err := c.piece(data, at-data); err != nil {
				return err
			}
			c.tell(at)
		}
		at = max(at, hole)
	}
	c.tell(c.size)
	return ctx.Err()
}

func (c *copying) tell(done int64) {
	if c.progress != nil {
		c.progress(done, c.size)
	}
}

// piece copies some bytes at an offset, in the kernel where the file system can.
func (c *copying) piece(at, count int64) error {
	if _, err := c.to.Seek(at, io.SeekStart); err != nil {
		return err
	}
	if _, err := c.from.Seek(at, io.SeekStart); err != nil {
		return err
	}
	n, err := io.CopyN(c.to, c.from, count)
	if err == nil || errors.Is(err, io.EOF) && n == count {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the image became shorter", fs.ErrInvalid)
	}
	return err
}
