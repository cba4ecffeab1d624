package content

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// What files and directories have unless a client says otherwise.
const (
	fileMode = 0o666
	dirMode  = 0o777
	// maxMode is the most that a client may ask for: no set-id, no sticky bit.
	maxMode = 0o777
)

// attributes are a file's owner and mode.
type attributes struct {
	uid, gid, mode uint32
}

func (a attributes) apply(fd int) error {
	if err := unix.Fchown(fd, int(a.uid), int(a.gid)); err != nil {
		return err
	}
	return unix.Fchmod(fd, a.mode)
}

// defaults are those of a new file or directory.
func defaults(mode uint32) attributes { return attributes{tree.Owner, tree.Owner, mode} }

// makeDir makes a directory. With force those above it are made too, and one
// that is there is as good.
func (r root) makeDir(rel string, a attributes, force bool) (entry, error) {
	if rel == "." {
		if !force {
			return entry{}, unix.EEXIST
		}
		return r.look(rel)
	}
	if force {
		if err := r.makeParents(rel, a); err != nil {
			return entry{}, err
		}
	}
	dir, name, err := r.parent(rel)
	if err != nil {
		return entry{}, err
	}
	defer unix.Close(dir)
	err = makeIn(dir, name, a)
	if force && errors.Is(err, unix.EEXIST) {
		fd, oerr := r.open(rel, unix.O_PATH|unix.O_DIRECTORY)
		if errors.Is(oerr, unix.ENOTDIR) {
			return entry{}, unix.EEXIST
		}
		if oerr != nil {
			return entry{}, oerr
		}
		unix.Close(fd)
		err = nil
	}
	if err != nil {
		return entry{}, err
	}
	return lookAt(dir, name, rel)
}

// makeIn makes a directory in an open one. It belongs to nobody else before it
// has its owner and mode.
func makeIn(dir int, name string, a attributes) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	fd, err := beneath.OpenNoLinks(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return a.apply(fd)
}

// makeParents makes the directories above rel that are not there.
func (r root) makeParents(rel string, a attributes) error {
	a.mode = dirMode
	parts := strings.Split(rel, "/")
	for i := range parts[:len(parts)-1] {
		p := path.Join(parts[:i+1]...)
		fd, err := r.open(p, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		dir, name, err := r.parent(p)
		if err != nil {
			return err
		}
		err = makeIn(dir, name, a)
		unix.Close(dir)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// copyBuffer is how much of a file is in memory at a time, in bytes.
const copyBuffer = 256 << 10

// tempPrefix begins the name that a file has for a moment on its way to
// replacing another one.
const tempPrefix = ".carboy-upload-"

// write makes a file of what it reads, at most limit bytes; 0: as much as there
// is room for. Only with force does it replace one, in one step, and make the
// directories above it. After an error nothing has changed.
func (r root) write(rel string, from io.Reader, a attributes, force bool, limit int64) (entry, error) {
	if rel == "." {
		return entry{}, unix.EISDIR
	}
	if force {
		if err := r.makeParents(rel, a); err != nil {
			return entry{}, err
		}
	}
	dir, name, err := r.parent(rel)
	if err != nil {
		return entry{}, err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return entry{}, unix.EISDIR
	case err == nil && !force:
		return entry{}, unix.EEXIST
	case err != nil && !errors.Is(err, unix.ENOENT):
		return entry{}, err
	}
	u, err := newUpload(dir)
	if err != nil {
		return entry{}, err
	}
	defer u.discard()
	if err := u.fill(from, a, limit); err != nil {
		return entry{}, err
	}
	if err := u.publish(name, force); err != nil {
		return entry{}, err
	}
	return lookAt(dir, name, rel)
}

// upload is a file in the making. It has no name, where the file system can do
// without: so nothing is left of it when this process is killed. What is already
// there is exchanged by the rules of volumes, under a filter: it is no record.
type upload struct {
	dir  int
	file *os.File
	temp string // its name for now; "": none
}

func newUpload(dir int) (*upload, error) {
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &upload{dir: dir, file: os.NewFile(uintptr(fd), "upload")}, nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	return namedUpload(dir)
}

func namedUpload(dir int) (*upload, error) {
	temp := tempPrefix + rand.Text()
	fd, err := unix.Openat(dir, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return &upload{dir: dir, file: os.NewFile(uintptr(fd), "upload"), temp: temp}, nil
}

// fill writes the content, and then has it on the disk.
func (u *upload) fill(from io.Reader, a attributes, limit int64) error {
	if limit > 0 {
		from = io.LimitReader(from, limit+1)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{u.file}, from, make([]byte, copyBuffer))
	if err != nil {
		return err
	}
	if limit > 0 && n > limit {
		return unix.EFBIG
	}
	if err := a.apply(int(u.file.Fd())); err != nil {
		return err
	}
	return u.file.Sync()
}

// publish gives the file its name.
func (u *upload) publish(name string, replace bool) error {
	if u.temp == "" && !replace {
		return unix.Linkat(int(u.file.Fd()), "", u.dir, name, unix.AT_EMPTY_PATH)
	}
	if u.temp == "" {
		temp := tempPrefix + rand.Text()
		if err := unix.Linkat(int(u.file.Fd()), "", u.dir, temp, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
		u.temp = temp
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err := unix.Renameat2(u.dir, u.temp, u.dir, name, flags)
	if err == nil {
		u.temp = ""
	}
	return err
}

func (u *upload) discard() {
	u.file.Close()
	if u.temp != "" {
		_ = unix.Unlinkat(u.dir, u.temp, 0)
	}
}

// change gives a file or a directory another owner or mode. nil: as it is.
func (r root) change(rel string, uid, gid, mode *uint32) (entry, error) {
	fd, err := r.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EACCES) {
		return entry{}, errNoFile
	}
	if err != nil {
		return entry{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return entry{}, err
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFDIR {
		return entry{}, errNoFile
	}
	if uid != nil || gid != nil {
		if err := unix.Fchown(fd, orSame(uid), orSame(gid)); err != nil {
			return entry{}, err
		}
	}
	if mode != nil {
		if err := unix.Fchmod(fd, *mode); err != nil {
			return entry{}, err
		}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return entry{}, err
	}
	return entryOf(rel, &st), nil
}

func orSame(id *uint32) int {
	if id == nil {
		return -1
	}
	return int(*id)
}

// remove deletes what is at rel, with all that is in it. A link is deleted
// itself.
func (r root) remove(ctx context.Context, rel string) error {
	if rel == "." {
		return faultf(badRequest, "the volume's root can't be removed")
	}
	dir, name, err := r.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return beneath.Remove(ctx, dir, name)
}
