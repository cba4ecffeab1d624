package jail

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Connect connects to a unix socket by its path, as a command of u's would, and returns the descriptor. It does not wait for one whose queue is
// full: that is EAGAIN.
func (j *Jail) Connect(u User, path string) (fd int, err error) {
	connect := func() { fd, err = connectTo(path) }
	if u.UID != 0 {
		if aerr := j.Act(u, connect); aerr != nil {
			return -1, aerr
		}
		return fd, err
	}
	j.mu.Lock()
	ns := j.cell.mounts()
	j.mu.Unlock()
	if ns == nil {
		return -1, ErrRestarting
	}
	if merr := inMounts(ns, func() error { connect(); return nil }); merr != nil {
		return -1, merr
	}
	return fd, err
}

func connectTo(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
