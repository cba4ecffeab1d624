// Package tree knows how a volume lies on disk: below State/volumes there is a
// directory for each, and in it an image of an ext4 of the volume's own, or,
// where this machine can't mount one, a plain directory.
//
// What a volume holds is below the image's directory "data", so that nothing
// that belongs to the file system itself is shown. Its files carry the ids that
// guests see: 0 to 65535.
//
// The package refuses IDs that are not ours, and a volume that is not there:
// nothing is made in its place.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Names below a volume's directory.
const (
	fileImage = "disk.img"
	dirPlain  = "plain"
	dirData   = "data" // in the image
	dirMount  = "mnt"
)

const (
	// Owner is the uid and the gid of a volume's root directory, as guests and
	// the files themselves have it.
	Owner = 1000
	// IDs is how many uids and gids files can have, from 0 on.
	IDs = 1 << 16

	dataMode = 0o777
)

// A Tree is one volume's files. Either Image or Plain is set, an absolute path.
type Tree struct {
	Image string `json:"image,omitempty"` // an ext4 image
	Plain string `json:"plain,omitempty"` // a directory without bounds of its own
	// Point is an empty directory beside it, to mount on in a mount namespace of
	// one's own.
	Point string `json:"point"`
	// Holder and Label are how what is written to the image is held while the host's disk
	// is full, as disk.Options has it.
	Holder string `json:"holder,omitempty"`
	Label  string `json:"label,omitempty"`
	// Slot is which of a cache's directories is meant, from 1; 0: all of them.
	Slot int `json:"slot,omitempty"`
	// Sub is which directory of the slot is meant; "": the slot itself.
	Sub string `json:"sub,omitempty"`
}

// Root returns the directory of all volumes below the state directory.
func Root(state string) string { return filepath.Join(state, "volumes") }

// Find returns the volume with that ID, or NotFound.
func Find(state, id string) (Tree, error) {
	if !sandbox.ValidVolumeID(id) {
		return Tree{}, sandbox.Errorf(sandbox.Invalid, "volume %.80q: not an ID of ours", id)
	}
	t, err := At(filepath.Join(Root(state), id), id)
	t.Holder, t.Label = hold.Served(state), id
	return t, err
}

// At returns the volume whose directory is dir. Errors call it id.
func At(dir, id string) (Tree, error) {
	t := Tree{Point: filepath.Join(dir, dirMount)}
	for _, f := range []struct {
		name string
		to   *string
		dir  bool
	}{{fileImage, &t.Image, false}, {dirPlain, &t.Plain, true}} {
		path := filepath.Join(dir, f.name)
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Tree{}, fmt.Errorf("look at volume %s: %w", id, err)
		}
		if st.IsDir() != f.dir || !f.dir && !st.Mode().IsRegular() {
			break
		}
		*f.to = path
		return t, nil
	}
	return Tree{}, sandbox.Errorf(sandbox.NotFound, "volume %s: its disk is gone", id).
		WithHint("have its directory put back from a backup, or carboy volume rm %s", id)
}

// Make makes an empty volume of that size in dir, which is there and empty. It
// makes an image, or, without images, a plain directory, which keeps to no size.
func Make(ctx context.Context, images *disk.Images, dir string, size disk.Size) error {
	if err := os.Mkdir(filepath.Join(dir, dirMount), 0o700); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if images != nil {
		return images.Make(ctx, filepath.Join(dir, fileImage), size)
	}
	if err := makeData(dir, dirPlain); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	return nil
}

// Grow makes a volume in dir, which is there and empty, that holds what t does
// and has to bytes. It returns what that then is: see disk.Grow.
func (t Tree) Grow(ctx context.Context, dir string, from disk.Size, to int64) (disk.Size, error) {
	if t.Image == "" {
		return from, sandbox.Errorf(sandbox.Unsupported, "a plain directory has no size to grow")
	}
	if err := os.Mkdir(filepath.Join(dir, dirMount), 0o700); err != nil {
		return from, fmt.Errorf("grow volume: %w", err)
	}
	return disk.Grow(ctx, t.Image, filepath.Join(dir, fileImage), from, to)
}

// Mount makes the volume's files available and returns the directory that holds
// them. An image is mounted at a directory of the caller's, in the mount
// namespace of the calling thread: the same file system in each that does so.
func (t Tree) Mount(ctx context.Context, at string) (string, error) {
	if t.Image == "" {
		return t.slot(t.Plain)
	}
	if _, err := disk.Mount(ctx, t.Image, at, disk.Options{Holder: t.Holder, Label: t.Label}); err != nil {
		return "", err
	}
	err := makeData(at, dirData)
	if err != nil {
		return "", errors.Join(fmt.Errorf("open volume: %w", err), disk.Unmount(at))
	}
	data, err := t.slot(filepath.Join(at, dirData))
	if err != nil {
		return "", errors.Join(err, disk.Unmount(at))
	}
	return data, nil
}

// slot returns the directory of Slot in data, which it makes where it is missing.
func (t Tree) slot(data string) (string, error) {
	if t.Slot == 0 {
		return data, nil
	}
	name := strconv.Itoa(t.Slot)
	if err := makeData(data, name); err != nil {
		return "", fmt.Errorf("open slot %s of a cache: %w", name, err)
	}
	data = filepath.Join(data, name)
	if t.Sub == "" {
		return data, nil
	}
	if t.Sub == "." || t.Sub == ".." || filepath.Base(t.Sub) != t.Sub {
		return "", fmt.Errorf("open %q of a slot: not a name", t.Sub)
	}
	if err := makeData(data, t.Sub); err != nil {
		return "", fmt.Errorf("open %s of slot %s: %w", t.Sub, name, err)
	}
	return filepath.Join(data, t.Sub), nil
}

// makeData makes the root directory of a volume, unless it is there. Several
// may do so at once, and be killed at any point: it gets its name when it is
// whole.
func makeData(at, name string) error {
	d, err := beneath.OpenDir(at)
	if err != nil {
		return err
	}
	defer d.Close()
	switch st, err := d.Stat(name); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil
	case err == nil:
		return fmt.Errorf("%s is not a directory", name)
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	fresh := name + ".new"
	if err := d.Mkdir(fresh, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if os.Geteuid() == 0 { // who is not appears as the guests' user already
		if err := d.Chown(fresh, Owner, Owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = d.Chmod(fresh, dataMode)
	if err == nil {
		err = d.Rename(fresh, name, unix.RENAME_NOREPLACE)
	}
	if err == nil {
		return nil
	}
	if _, serr := d.Stat(name); serr == nil { // another was first
		return d.Remove(context.Background(), fresh)
	}
	return err
}

// Used returns how many bytes the volume takes on the host's disk. For a plain
// one that is not known, and 0.
func (t Tree) Used() (int64, error) {
	if t.Image == "" {
		return 0, nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(t.Image, &st); err != nil {
		return 0, fmt.Errorf("look at a volume's disk: %w", err)
	}
	return st.Blocks * 512, nil
}
