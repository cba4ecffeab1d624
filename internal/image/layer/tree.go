package layer

import (
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const (
	newDir   = 0o700 // mode of a directory until the end
	newFile  = 0o600 // of a file until it is whole
	openDirs = 64    // directories kept open
)

// layerTree is a directory and those below it that were used last, open.
type layerTree struct {
	root int
	gid  uint32 // of the root: what new files get where directories hand it down
	dirs map[string]*openDir
	used uint64 // counts lookups
}

type openDir struct {
	fd   int
	used uint64 // when it was looked up last
}

// openTree opens dir, which must be empty.
func openTree(dir string) (*layerTree, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the layer's directory: %w", err)
	}
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return nil, fmt.Errorf("unpack a layer: %s is not empty", dir)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	fd, err := openat(int(f.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &layerTree{root: fd, gid: st.Gid, dirs: map[string]*openDir{}}, nil
}

func (t *layerTree) close() {
	for _, d := range t.dirs {
		unix.Close(d.fd)
	}
	unix.Close(t.root)
}

// open returns a descriptor of the directory rel, good for a path only, until
// openDirs others were asked for.
func (t *layerTree) open(rel string) (int, error) {
	if rel == "." {
		return t.root, nil
	}
	t.used++
	if d := t.dirs[rel]; d != nil {
		d.used = t.used
		return d.fd, nil
	}
	fd, err := beneath.OpenHere(t.root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		if err == unix.ENOSYS {
			err = unsupported(err, "use Linux 5.6 or newer", "unpack a layer: this kernel has no openat2")
		}
		return -1, err
	}
	if len(t.dirs) >= openDirs {
		t.evict()
	}
	t.dirs[rel] = &openDir{fd, t.used}
	return fd, nil
}

// evict closes the directory that was looked up the longest time ago.
func (t *layerTree) evict() {
	oldest := ""
	for rel, d := range t.dirs {
		if oldest == "" || d.used < t.dirs[oldest].used {
			oldest = rel
		}
	}
	t.forget(oldest)
}

// forget closes rel, which may have been removed.
func (t *layerTree) forget(rel string) {
	if d := t.dirs[rel]; d != nil {
		unix.Close(d.fd)
		delete(t.dirs, rel)
	}
}

// The calls below work on a name in an open directory, and follow no link.

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	})
}

// retry repeats a call that a signal or a rename elsewhere interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		v, err := call()
		if err != unix.EINTR && err != unix.EAGAIN {
			return v, err
		}
	}
}

func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// isWhiteout reports whether st is of a character device 0:0.
func isWhiteout(st *unix.Stat_t) bool { return kind(st) == unix.S_IFCHR && st.Rdev == 0 }

func setTime(dir int, name string, mod time.Time) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: mod.Unix(), Nsec: int64(mod.Nanosecond())}}
	if err := unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set time: %w", err)
	}
	return nil
}

// writeAll writes all of b.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Write(fd, b) })
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// split returns the directory and the last part of rel.
func split(rel string) (dir, base string) { return path.Dir(rel), path.Base(rel) }
