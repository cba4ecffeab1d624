package hostroot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// Places that no session is given, nor what holds them. What is in an open one
// may be had where an allowed root lies in it too; a closed one stays closed.
var (
	closedPlaces = []string{"/etc", "/proc", "/sys", "/dev", "/boot"}
	openPlaces   = []string{"/root", "/run", "/var/run"}
)

// maxDepth is how many directories are above one at most: a path has no more.
const maxDepth = 2048

// Dir is a directory of the host that may be mounted, held open: it stays this
// directory, whatever becomes of its name.
type Dir struct {
	sandbox.HostDir
	f *os.File
}

// File returns the directory, opened with O_PATH. It is closed with the Dir.
func (d *Dir) File() *os.File { return d.f }

// Close lets go of the directory.
func (d *Dir) Close() error { return d.f.Close() }

// identity tells a directory from every other, by whatever name.
type identity struct{ dev, ino uint64 }

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, fmt.Errorf("look at directory: %w", err)
	}
	return identity{st.Dev, st.Ino}, nil
}

// openDir opens a directory to look at, by a name that is resolved now.
func openDir(path string) (*os.File, error) {
	return openAt(unix.AT_FDCWD, path, 0)
}

func openAt(dir int, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// deepest opens the directory that path leads to, or else the nearest above it
// that can be opened, with the names that are left and why they are.
func deepest(path string) (dir *os.File, left []string, why error) {
	for at := path; ; at = filepath.Dir(at) {
		dir, err := openDir(at)
		if err == nil {
			return dir, left, why
		}
		if why == nil {
			why = err
		}
		if at == "/" {
			return nil, nil, err
		}
		left = append([]string{filepath.Base(at)}, left...)
	}
}

// above returns what dir is and what it lies in, the nearest first.
func above(dir *os.File) ([]identity, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("look above directory: %w", err)
	}
	at := os.NewFile(uintptr(fd), dir.Name())
	defer func() { _ = at.Close() }()
	var chain []identity
	for range maxDepth {
		id, err := identify(int(at.Fd()))
		if err != nil {
			return nil, err
		}
		if len(chain) > 0 && chain[len(chain)-1] == id {
			return chain, nil // the top is its own parent
		}
		chain = append(chain, id)
		up, err := openAt(int(at.Fd()), "..", 0)
		if err != nil {
			return nil, err
		}
		_ = at.Close()
		at = up
	}
	return nil, unix.ENAMETOOLONG
}

// check wants dir to be in an allowed root, and in no place that is closed. The
// whole path leads to it, or it is only the nearest that is there.
func (r *Roots) check(path string, dir *os.File, whole bool) error {
	chain, err := above(dir)
	if err != nil {
		return notThere(path, err)
	}
	// The innermost of the allowed roots that it is in.
	root := -1
	for _, name := range r.allowed {
		if i := indexOf(chain, name); i >= 0 && (root < 0 || i < root) {
			root = i
		}
	}
	for _, place := range closedPlaces {
		if indexOf(chain, place) >= 0 || whole && holds(chain[0], place) {
			return sandbox.Errorf(sandbox.Denied, "host_path %s is blocked for security: nothing of %s is mounted", fault.Show(path), place).
				WithHint("copy what is needed to a directory in box.allowed_mount_roots")
		}
	}
	for _, place := range slices.Concat(openPlaces, r.private) {
		i := indexOf(chain, place)
		if i >= 0 && (root < 0 || root >= i) || whole && holds(chain[0], place) {
			return sandbox.Errorf(sandbox.Denied,
				"host_path %s is blocked for security: to mount what is in %s, name a directory in there in allowed_mount_roots",
				fault.Show(path), place).
				WithHint("move it elsewhere, or set box.allowed_mount_roots")
		}
	}
	if root < 0 {
		return r.outside(path)
	}
	return nil
}

// indexOf returns where the directory called name is in a chain; -1: nowhere.
func indexOf(chain []identity, name string) int {
	f, err := openDir(name)
	if err != nil {
		return -1
	}
	defer func() { _ = f.Close() }()
	id, err := identify(int(f.Fd()))
	if err != nil {
		return -1
	}
	return slices.Index(chain, id)
}

// holds reports whether the directory called name is in dir.
func holds(dir identity, name string) bool {
	f, err := openDir(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	chain, err := above(f)
	return err != nil || slices.Contains(chain, dir)
}

// makeBelow makes directories of these names, each in the one before, and opens
// the last. No link is followed. Each belongs to whom its parent belongs.
func makeBelow(dir *os.File, names []string) (*os.File, error) {
	at := dir
	for _, name := range names {
		next, err := makeIn(at, name)
		if at != dir {
			_ = at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func makeIn(parent *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(parent.Fd()), name, 0o755)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	made := err == nil
	f, err := openAt(int(parent.Fd()), name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	if made && os.Geteuid() == 0 {
		var st unix.Stat_t
		if err = unix.Fstat(int(parent.Fd()), &st); err == nil {
			err = unix.Fchownat(int(f.Fd()), "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

// describe says which directory f is, and holds it open for itself.
func describe(f *os.File) (*Dir, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("hold directory: %w", err)
	}
	own := os.NewFile(uintptr(fd), f.Name())
	d, err := described(own)
	if err != nil {
		_ = own.Close()
	}
	return d, err
}

func described(f *os.File) (*Dir, error) {
	var st, again unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at directory: %w", err)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("find the directory's path: %w", err)
	}
	// One that was deleted or moved has a name that leads elsewhere or nowhere.
	if err := unix.Lstat(real, &again); err != nil || again.Dev != st.Dev || again.Ino != st.Ino {
		return nil, unix.ENOENT
	}
	return &Dir{f: f, HostDir: sandbox.HostDir{Path: real, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid}}, nil
}
