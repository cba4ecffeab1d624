// Package owner has gVisor's file server make files as the user who makes them inside.
//
// By itself it makes them as root, and gives them away in a second step. Between the two, whoever shares the directory
// finds a file that they may not write to, or not read: SQLite behind the process wall took a shared database for
// a read-only one. Here the thread that makes a file has that user's id for it, and the second step
// changes nothing.
//
// It keeps root's capabilities over files meanwhile: what may be made where is gVisor's kernel's to decide, as
// before. An id that can't be had is left to the second step.
package owner

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/lisafs"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// secbitNoSetuidFixup leaves a thread's capabilities as they are where its user changes to or from root.
const secbitNoSetuidFixup = 1 << 2

// Keep has the gofer that this process becomes do so. It must be called before that gives up its rights, and again in what it executes
// itself as.
func Keep() error {
	if err := keepOnChange(); err != nil {
		return fmt.Errorf("keep capabilities as users change: %w", err)
	}
	keepCapabilities("CAP_SETUID", "CAP_SETGID")
	own = id{lisafs.UID(unix.Geteuid()), lisafs.GID(unix.Getegid())}
	wrap(lisafs.OpenCreateAt, func(r *lisafs.OpenCreateAtReq) id { return id{r.UID, r.GID} })
	wrap(lisafs.MkdirAt, func(r *lisafs.MkdirAtReq) id { return id{r.UID, r.GID} })
	wrap(lisafs.MknodAt, func(r *lisafs.MknodAtReq) id { return id{r.UID, r.GID} })
	wrap(lisafs.SymlinkAt, func(r *lisafs.SymlinkAtReq) id { return id{r.UID, r.GID} })
	wrap(lisafs.BindAt, func(r *lisafs.BindAtReq) id { return id{r.UID, r.GID} })
	inheritGroup()
	return nil
}

// inheritGroup leaves the set-group-id bit of a new directory to the host's kernel, which sets it where the directory around
// has it. gVisor asks for it as well, and what asks for a set-id bit is refused.
func inheritGroup() {
	answer := handlers[lisafs.MkdirAt]
	handlers[lisafs.MkdirAt] = func(c *lisafs.Connection, comm lisafs.Communicator, length uint32) (uint32, error) {
		var req lisafs.MkdirAtReq
		b := comm.PayloadBuf(length)
		if _, ok := req.CheckedUnmarshal(b); ok && req.Mode&linux.S_ISGID != 0 {
			req.Mode &^= linux.S_ISGID
			req.MarshalBytes(b)
		}
		return answer(c, comm, length)
	}
}

// keepOnChange leaves all threads their capabilities, if they were not told before.
func keepOnChange() error {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil || bits&secbitNoSetuidFixup != 0 {
		return err
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, uintptr(bits|secbitNoSetuidFixup), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// id is whose a file is that is made.
type id struct {
	uid lisafs.UID
	gid lisafs.GID
}

// own is the gofer's, which may not ask for it later.
var own id

// request is the pointer to one of the protocol's.
type request[T any] interface {
	*T
	CheckedUnmarshal(src []byte) (rest []byte, ok bool)
}

// wrap has requests of one kind answered with the id of whom they are for.
func wrap[T any, R request[T]](m lisafs.MID, who func(R) id) {
	answer := handlers[m]
	handlers[m] = func(c *lisafs.Connection, comm lisafs.Communicator, length uint32) (uint32, error) {
		req := R(new(T))
		if _, ok := req.CheckedUnmarshal(comm.PayloadBuf(length)); ok {
			defer who(req).assume()()
		}
		return answer(c, comm, length)
	}
}

// assume gives the calling thread an id over files, until restore. One that can't be had changes nothing.
func (who id) assume() (restore func()) {
	if who == own {
		return func() {}
	}
	runtime.LockOSThread()
	_ = who.set()
	return func() {
		if own.set() == nil { // or the thread is not given back
			runtime.UnlockOSThread()
		}
	}
}

func (who id) set() error { return rights.OfFiles(uint32(who.uid), uint32(who.gid)) }
