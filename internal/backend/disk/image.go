package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Make makes an image file with an empty file system of size s at path, mode
// 0600. Its directory is made, mode 0700, if it is not there, and must not be
// writable by others. Make fails with Invalid for an impossible size and with
// Conflict where path exists; after an error there is nothing at path. Two
// calls for the same path must not run at once. No disk is waited for: who needs
// the image there syncs it.
func (m *Images) Make(ctx context.Context, path string, s Size) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := privateDir(dir); err != nil {
		return err
	}
	t, err := m.template(ctx, s)
	if err != nil {
		return err
	}
	defer t.Close()
	partial := filepath.Join(dir, "."+filepath.Base(path)+".partial")
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make disk image: %w", err)
	}
	err = copyTo(partial, t)
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, partial, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(partial)
	if errors.Is(err, unix.EEXIST) {
		return sandbox.Errorf(sandbox.Conflict, "disk image %s exists", path)
	}
	return fmt.Errorf("make disk image %s: %w", path, err)
}

// privateDir makes dir if it is not there, and refuses one that others write.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make disk image directory: %w", err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("make disk image directory: %w", err)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return sandbox.Errorf(sandbox.Denied, "directory %s for disk images is writable by others", dir).WithHint("chmod go-w %s", dir)
	}
	return nil
}

// copyTo copies a sparse file to a new one.
func copyTo(path string, src *os.File) error {
	dst, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := CopySparse(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// CopySparse copies src's data to an empty file and leaves its holes out. Where the file
// system can, the two share their blocks.
func CopySparse(dst, src *os.File) error {
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	if err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())); err == nil {
		return nil
	}
	if err := dst.Truncate(fi.Size()); err != nil {
		return err
	}
	for at := int64(0); at < fi.Size(); {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("seek data: %w", err)
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("seek hole: %w", err)
		}
		if err := copyRange(dst, src, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

// copyRange copies [from, to) in the kernel, or through memory where the two
// files' systems can't do that.
func copyRange(dst, src *os.File, from, to int64) error {
	for from < to {
		in, out := from, from
		n, err := unix.CopyFileRange(int(src.Fd()), &in, int(dst.Fd()), &out, int(min(to-from, 1<<30)), 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			_, err := io.Copy(io.NewOffsetWriter(dst, from), io.NewSectionReader(src, from, to-from))
			return err
		}
		from += int64(n)
	}
	return nil
}

// openImage opens an image file for writing and makes sure that it is one.
func openImage(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "disk image %s: not found", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	if _, err := readSuperblock(f); err != nil {
		f.Close()
		return nil, &sandbox.Error{Kind: sandbox.Internal, Msg: fmt.Sprintf("disk image %s is damaged: %v", path, err), Err: err}
	}
	return f, nil
}

// readSuperblock reads the superblock of an image file.
func readSuperblock(f *os.File) (superblock, error) {
	fi, err := f.Stat()
	if err != nil {
		return superblock{}, err
	}
	if !fi.Mode().IsRegular() {
		return superblock{}, errors.New("not a regular file")
	}
	b := make([]byte, superblockSize)
	if _, err := f.ReadAt(b, superblockOffset); err != nil {
		return superblock{}, errNotExt4
	}
	sb, err := parseSuperblock(b)
	if err == nil && sb.blocks > uint64(fi.Size()/sb.blockSize) {
		return superblock{}, fmt.Errorf("it was cut off: %d bytes of %d blocks", fi.Size(), sb.blocks)
	}
	return sb, err
}

// superblock is what this package reads of an ext4 superblock.
type superblock struct {
	blockSize          int64
	blocks, freeBlocks uint64
	inodes, freeInodes uint32
	recover            bool // the journal must be replayed
	broken             bool // the kernel noted an error in it
}

// Where the superblock is, and how long.
const (
	superblockOffset = 1024
	superblockSize   = 1024
)

var errNotExt4 = errors.New("not an ext4 file system")

// parseSuperblock reads the superblock of an ext2, ext3 or ext4 file system.
func parseSuperblock(b []byte) (superblock, error) {
	le := binary.LittleEndian
	if len(b) < superblockSize || le.Uint16(b[0x38:]) != 0xEF53 {
		return superblock{}, errNotExt4
	}
	const incompatRecover, incompat64bit = 0x4, 0x80
	incompat := le.Uint32(b[0x60:])
	logBlock := le.Uint32(b[0x18:])
	if logBlock > 6 {
		return superblock{}, errNotExt4
	}
	s := superblock{
		blockSize:  1024 << logBlock,
		blocks:     uint64(le.Uint32(b[0x04:])),
		freeBlocks: uint64(le.Uint32(b[0x0C:])),
		inodes:     le.Uint32(b[0x00:]),
		freeInodes: le.Uint32(b[0x10:]),
		recover:    incompat&incompatRecover != 0,
		broken:     le.Uint16(b[0x3A:])&2 != 0,
	}
	if incompat&incompat64bit != 0 {
		s.blocks |= uint64(le.Uint32(b[0x150:])) << 32
		s.freeBlocks |= uint64(le.Uint32(b[0x158:])) << 32
	}
	if s.blocks > 1<<48 || s.freeBlocks > s.blocks || s.freeInodes > s.inodes {
		return superblock{}, errNotExt4
	}
	return s, nil
}
