package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount returns the root of a cgroup v2 mount that exists in no mount
// namespace that anything runs in, and that namespace, which keeps the mount.
func mount() (root, pin *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with its state
		root, pin, err = mountHere()
	}()
	<-done
	return root, pin, err
}

func mountHere() (root, pin *os.File, err error) {
	const over = "/proc" // a directory that every instance has
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return nil, nil, fmt.Errorf("leave the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, nil, fmt.Errorf("make mounts private: %w", err)
	}
	if pin, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
		return nil, nil, fmt.Errorf("keep the mount namespace: %w", err)
	}
	err = unix.Mount("cgroup2", over, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err == nil {
		root, err = os.Open(over)
	}
	if err != nil {
		_ = pin.Close()
		return nil, nil, fmt.Errorf("mount cgroup v2: %w", err)
	}
	return root, pin, nil
}

// ownPath returns this process's path in the v2 hierarchy.
func ownPath() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find own cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			if !path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "/..") {
				return "", fmt.Errorf("own cgroup %q is outside of what is mounted", p)
			}
			return p, nil
		}
	}
	return "", errors.New("find own cgroup: no v2 hierarchy")
}

func at(dir *os.File, f func(fd int) error) error {
	raw, err := dir.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

func open(dir *os.File, name string, flags int) (*os.File, error) {
	fd := -1
	err := at(dir, func(at int) (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func exists(dir *os.File, name string) bool {
	f, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

func openDir(dir *os.File, name string) (*os.File, error) {
	if name == "" {
		name = "."
	}
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// makeDir makes and opens a directory; one that is there is taken over.
func makeDir(dir *os.File, name string) (*os.File, error) {
	err := at(dir, func(fd int) error { return unix.Mkdirat(fd, name, 0o755) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make cgroup %s: %w", name, err)
	}
	return openDir(dir, name)
}

func write(dir *os.File, name, text string) error {
	f, err := open(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// value is the counter of a file that may be nil, 0 where there is none.
func value(f *os.File, key string) uint64 {
	if f == nil {
		return 0
	}
	v, _ := counter(f, key)
	return v
}

// counter reads a number by its key from a file of "key number" lines.
func counter(f *os.File, key string) (n uint64, ok bool) {
	var buf [512]byte
	size, _ := f.ReadAt(buf[:], 0)
	for line := range bytes.Lines(buf[:size]) {
		rest, ok := bytes.CutPrefix(line, []byte(key+" "))
		if !ok {
			continue
		}
		v, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
		return v, err == nil
	}
	return 0, false
}

// number reads a file of one number. There is none in a limit of "max".
func number(f *os.File) (n uint64, ok bool) {
	var buf [32]byte
	size, _ := f.ReadAt(buf[:], 0)
	n, err := strconv.ParseUint(string(bytes.TrimSpace(buf[:size])), 10, 64)
	return n, err == nil
}

// ids reads a list of processes or threads, and reports whether this process is
// in it, and whether others are. A list that can't be read is empty.
func ids(dir *os.File, name string) (own, others bool) {
	f, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return false, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if lines.Text() == strconv.Itoa(os.Getpid()) {
			own = true
		} else {
			others = true
		}
	}
	return own, others
}
