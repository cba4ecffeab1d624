package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	growTries = 12

	// growRoom is what is left free when an image is copied, for the tables of its
	// new groups and for others, in bytes.
	growRoom = 64 << 20
)

// Grow makes an image at dst that holds what the one at src does, and is
// larger by as many bytes as to is larger than from. It returns what dst then is: each
// 128 MiB of an image have as many inodes as the first ones. src stays as it is,
// and is not mounted meanwhile: it is refused with Conflict where it is attached,
// or was not unmounted in good order, with Exhausted where dst's file system has no
// room for a copy, and with Unsupported where resize2fs is not there. After an error
// there is nothing at dst.
func Grow(ctx context.Context, src, dst string, from Size, to int64) (is Size, err error) {
	is = Size{Bytes: to, Inodes: from.Inodes}
	if err := (Size{Bytes: to, Inodes: 1}).Validate(); err != nil {
		return is, err
	}
	if to <= from.Bytes {
		return is, sandbox.Errorf(sandbox.Invalid, "disk image %s: %d bytes are not more than its %d", src, to, from.Bytes)
	}
	tool, err := find("resize2fs")
	if err != nil {
		return is, err
	}
	img, err := openImage(src)
	if err != nil {
		return is, err
	}
	defer img.Close()
	if err := lockAttach(ctx, img); err != nil {
		return is, fmt.Errorf("grow disk image %s: %w", src, err)
	}
	if err := growable(ctx, img, filepath.Dir(dst)); err != nil {
		return is, err
	}
	if err := copyTo(dst, img); err != nil {
		return is, fmt.Errorf("grow disk image %s: %w", src, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(dst)
		}
	}()
	before, after, err := resize(ctx, tool, dst, (to-from.Bytes)/blockSize)
	if err != nil {
		return is, fmt.Errorf("grow disk image %s: %w", src, err)
	}
	is.Inodes += int64(after.inodes) - int64(before.inodes)
	return is, nil
}

// CanGrow says why this machine can't grow images, as an Unsupported error, or nil.
func CanGrow() error {
	_, err := find("resize2fs")
	return err
}

// Blocks returns of how many blocks an image says that it is.
func Blocks(path string) (uint64, error) {
	f, err := openImage(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sb, err := readSuperblock(f)
	return sb.blocks, err
}

// growable refuses an image that is in use, was left in the middle of something
// or has no room beside it for a copy, which shares blocks only where the file
// system can.
func growable(ctx context.Context, img *os.File, dir string) error {
	if err := Detached(ctx, img.Name()); err != nil {
		return err
	}
	sb, err := readSuperblock(img)
	if err != nil {
		return fmt.Errorf("read disk image %s: %w", img.Name(), err)
	}
	if sb.recover {
		return sandbox.Errorf(sandbox.Conflict, "disk image %s was not unmounted in good order", img.Name()).WithHint("use it once, then try again")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(img.Fd()), &st); err != nil {
		return fmt.Errorf("read disk image %s: %w", img.Name(), err)
	}
	if held := st.Blocks * 512; uint64(held)+growRoom > Room(dir) {
		return sandbox.Errorf(sandbox.Exhausted, "the disk of carboy's state has no room to copy an image of %d bytes, which is how it is grown", held).
			WithHint("free some space there")
	}
	return nil
}

// resize gives an image so many usable blocks more, and no more. What the
// tables of new groups take is known only when they are made.
func resize(ctx context.Context, tool, path string, more int64) (before, after superblock, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return before, after, err
	}
	defer f.Close()
	if before, err = readSuperblock(f); err != nil {
		return before, after, err
	}
	blocks := int64(before.blocks) + more
	for range growTries {
		if after, err = resizeTo(ctx, tool, f, blocks); err != nil {
			return before, after, err
		}
		missing := more - (usable(after) - usable(before))
		switch {
		case missing == 0:
			return before, after, f.Sync()
		case missing > 0 && missing <= slackBytes/blockSize && int64(after.blocks) < blocks:
			return before, after, f.Sync() // the last group would be too small for its tables
		}
		blocks += missing
	}
	return before, after, fmt.Errorf("%s can't be had to add %d blocks", tool, more)
}

func resizeTo(ctx context.Context, tool string, f *os.File, blocks int64) (superblock, error) {
	fi, err := f.Stat()
	if err != nil {
		return superblock{}, err
	}
	if n := blocks * blockSize; n > fi.Size() {
		if err := f.Truncate(n); err != nil {
			return superblock{}, err
		}
	}
	out, err := command(ctx, tool, "-f", f.Name(), strconv.FormatInt(blocks, 10)).CombinedOutput()
	if err != nil {
		return superblock{}, fmt.Errorf("%s: %w: %.300s", tool, err, strings.TrimSpace(string(out)))
	}
	return readSuperblock(f)
}

// find looks for a tool of e2fsprogs where PATH says and where it is installed.
func find(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if unix.Access(dir+name, unix.X_OK) == nil {
			return dir + name, nil
		}
	}
	return "", sandbox.Errorf(sandbox.Unsupported, "disk images need %s, which is not installed", name).WithHint("apt install e2fsprogs")
}
