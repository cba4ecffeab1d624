package hostlock

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// whole is every range.
var whole = fslock.LockRange{Start: 0, End: fslock.LockEOF}

// request is for a lock of a range, by fcntl.
type request struct {
	file *vfs.FileDescription
	uid  fslock.UniqueID // who asks, as gVisor's own fcntl has it
	pid  int32
	typ  fslock.LockType
	at   fslock.LockRange
}

// setRange takes or releases a lock of a range as fcntl does.
func setRange(t *kernel.Task, file *vfs.FileDescription, args arch.SyscallArguments) error {
	var flock linux.Flock
	if _, err := flock.CopyIn(t, args[2].Pointer()); err != nil {
		return err
	}
	cmd := args[1].Int()
	r := &request{file: file, uid: t.FDTable(), pid: int32(t.TGIDInRoot())}
	if cmd == linux.F_OFD_SETLK || cmd == linux.F_OFD_SETLKW {
		if flock.PID != 0 {
			return linuxerr.EINVAL
		}
		r.uid, r.pid = file, -1
	}
	var err error
	if r.at, err = file.ComputeLockRange(t, uint64(flock.Start), uint64(flock.Len), flock.Whence); err != nil {
		return err
	}
	n := enter(file)
	defer n.leave()
	switch {
	case flock.Type == linux.F_UNLCK:
		return n.unlock(t, r)
	case flock.Type == linux.F_RDLCK && file.IsReadable():
		r.typ = fslock.ReadLock
	case flock.Type == linux.F_WRLCK && file.IsWritable():
		r.typ = fslock.WriteLock
	case flock.Type == linux.F_RDLCK, flock.Type == linux.F_WRLCK:
		return linuxerr.EBADF
	default:
		return linuxerr.EINVAL
	}
	return n.wait(t, cmd == linux.F_SETLKW || cmd == linux.F_OFD_SETLKW, func() error { return n.lock(t, r) })
}

// testRange says who is in the way of a lock, as fcntl does: somebody inside, whom inside
// finds, or else somebody outside, who has no pid here.
func testRange(t *kernel.Task, file *vfs.FileDescription, args arch.SyscallArguments, inside func() error) error {
	addr := args[2].Pointer()
	var asked, found linux.Flock
	if _, err := asked.CopyIn(t, addr); err != nil {
		return err
	}
	if err := inside(); err != nil {
		return err
	}
	if _, err := found.CopyIn(t, addr); err != nil || found.Type != linux.F_UNLCK {
		return err
	}
	at, err := file.ComputeLockRange(t, uint64(asked.Start), uint64(asked.Len), asked.Whence)
	if err != nil {
		return err
	}
	n := enter(file)
	defer n.leave()
	outside, err := n.test(file, asked.Type, at)
	if err != nil || outside.Type == linux.F_UNLCK {
		return err
	}
	found = linux.Flock{Type: outside.Type, Start: outside.Start, Len: outside.Len, PID: -1}
	_, err = found.CopyOut(t, addr)
	return err
}

// lock tries to take a lock: on the host, where that changes nothing if it fails, and
// then inside. What is held inside can become less meanwhile, by a process that ends, and
// never more.
func (n *inode) lock(ctx context.Context, r *request) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.at.Length() == 0 {
		return nil
	}
	if f, err := n.locks.TestPOSIX(ctx, r.uid, r.typ, r.at); err != nil || f.Type != linux.F_UNLCK {
		return linuxerr.ErrWouldBlock
	}
	if err := n.room(r.at, maxRanges); err != nil {
		return err
	}
	if err := n.suit(r.file, r.typ); err != nil {
		return err
	}
	err := n.ranges.set(hostType(r.typ), r.at)
	if err == nil {
		if err = n.locks.LockPOSIX(ctx, r.uid, r.pid, r.typ, r.at, false); err == nil {
			n.fill(ctx, r)
			n.watchRanges(r.at)
			return nil
		}
		n.trim(r.at) // a reader of the other kind, whom the test does not tell of
	}
	if n.rangesWatch.on == nil {
		n.forgetRanges()
	}
	return err
}

// fill locks inside what gVisor left out of a range: where one that the same holder had is
// joined to what is new before it, it takes no notice of the rest.
func (n *inode) fill(ctx context.Context, r *request) {
	for at := r.at; at.Start < at.End; {
		held, _, ok := n.next(at)
		if !ok {
			held = fslock.LockRange{Start: at.End, End: at.End}
		}
		if at.Start < held.Start {
			_ = n.locks.LockPOSIX(ctx, r.uid, r.pid, r.typ, fslock.LockRange{Start: at.Start, End: held.Start}, false)
		}
		at.Start = held.End
	}
}

// unlock releases what the one who asks holds of a range.
func (n *inode) unlock(ctx context.Context, r *request) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ranges.open {
		if err := n.room(r.at, mostRanges); err != nil {
			return err
		}
	}
	n.rangesWatch.expect()
	err := n.locks.UnlockPOSIX(ctx, r.uid, r.at)
	n.trim(r.at)
	if r.at == whole {
		n.recount(0)
	}
	n.announce()
	return err
}

// test asks the host who is in the way of a lock of the kind.
func (n *inode) test(file *vfs.FileDescription, kind int16, at fslock.LockRange) (unix.Flock_t, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.ranges
	if !d.open {
		var err error
		if d, err = duplicate(file, kind == linux.F_WRLCK); err != nil {
			return unix.Flock_t{}, err
		}
		defer d.close()
	}
	return d.test(kind, at)
}

// suit sees to it that n has a descriptor that a lock of the type can be taken by. One that
// was opened for less gives its locks to the next: all are for reading, so both can have them
// at once.
func (n *inode) suit(file *vfs.FileDescription, typ fslock.LockType) error {
	if n.ranges.suits(typ) {
		return nil
	}
	next, err := duplicate(file, typ == fslock.WriteLock)
	if err != nil {
		return err
	}
	if n.ranges.open {
		for at := whole; ; {
			held, kind, ok := n.next(at)
			if !ok {
				break
			}
			if kind != unix.F_RDLCK || !next.reads || next.set(kind, held) != nil {
				_ = next.set(unix.F_UNLCK, whole)
				next.close()
				return linuxerr.ENOLCK
			}
			at.Start = held.End
		}
		_ = n.ranges.set(unix.F_UNLCK, whole)
		n.ranges.close()
	}
	n.ranges = next
	return nil
}

// trim has the host's locks in a range be what is held inside.
func (n *inode) trim(r fslock.LockRange) {
	if !n.ranges.open {
		return
	}
	for r.Start < r.End {
		held, kind, ok := n.next(r)
		if !ok {
			_ = n.ranges.set(unix.F_UNLCK, r)
			return
		}
		if r.Start < held.Start {
			_ = n.ranges.set(unix.F_UNLCK, fslock.LockRange{Start: r.Start, End: held.Start})
		}
		if kind == unix.F_RDLCK { // it may have been more
			_ = n.ranges.set(kind, held.Intersect(r))
		}
		r.Start = held.End
	}
}

// Two who hold nothing and are of either kind: gVisor tells a writer of any kind, and of
// readers only those of the kind that asks.
var (
	aProcess     fslock.UniqueID = new(int)
	aDescription fslock.UniqueID = new(vfs.FileDescription)
)

// next is the first part of r of which anything is held inside, as it is there, and how
// the host has it.
func (n *inode) next(r fslock.LockRange) (held fslock.LockRange, kind int16, ok bool) {
	if r.Start >= r.End {
		return held, 0, false
	}
	for _, uid := range []fslock.UniqueID{aProcess, aDescription} {
		f, err := n.locks.TestPOSIX(background(), uid, fslock.WriteLock, r)
		if err != nil || f.Type == linux.F_UNLCK || ok && held.Start <= uint64(f.Start) {
			continue
		}
		held, kind, ok = fslock.LockRange{Start: uint64(f.Start), End: uint64(f.Start + f.Len)}, f.Type, true
	}
	return held, kind, ok
}
