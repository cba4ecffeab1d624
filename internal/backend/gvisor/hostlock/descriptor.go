package hostlock

import (
	"errors"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
)

// descriptor is of the host's file. Locks belong to what it is a descriptor of, which the
// gofer and the sentry have others of: closing it releases none.
type descriptor struct {
	fd            int
	open          bool
	reads, writes bool // what it was opened for
	locked        bool // by flock
}

func (d *descriptor) suits(typ fslock.LockType) bool {
	return d.open && (typ == fslock.WriteLock && d.writes || typ == fslock.ReadLock && d.reads)
}

func (d *descriptor) close() {
	if d.open {
		unix.Close(d.fd)
	}
	*d = descriptor{}
}

func hostType(typ fslock.LockType) int16 {
	if typ == fslock.WriteLock {
		return unix.F_WRLCK
	}
	return unix.F_RDLCK
}

func hostRange(kind int16, r fslock.LockRange) unix.Flock_t {
	f := unix.Flock_t{Type: kind, Start: int64(r.Start), Len: int64(r.End - r.Start)}
	if r.End == fslock.LockEOF {
		f.Len = 0 // to the end, however far that is
	}
	return f
}

// set has the host's lock of a range be of the kind.
func (d *descriptor) set(kind int16, r fslock.LockRange) error {
	f := hostRange(kind, r)
	return refusal(func() error { return unix.FcntlFlock(uintptr(d.fd), unix.F_OFD_SETLK, &f) })
}

// test returns the host's lock that is in the way of one of the kind.
func (d *descriptor) test(kind int16, r fslock.LockRange) (unix.Flock_t, error) {
	f := hostRange(kind, r)
	err := refusal(func() error { return unix.FcntlFlock(uintptr(d.fd), unix.F_OFD_GETLK, &f) })
	return f, err
}

// refusal is the host's answer as programs inside get it: what can't be is ENOLCK.
func refusal(call func() error) error {
	err := call()
	for errors.Is(err, unix.EINTR) {
		err = call()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return linuxerr.ErrWouldBlock
	}
	return linuxerr.ENOLCK
}
