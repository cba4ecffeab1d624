package procid

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the kernel's siginfo_t as waitid fills it for a child.
type siginfo struct {
	signo  int32
	errno  int32
	code   int32
	_      int32 // the union is aligned to a word on 64-bit machines
	pid    int32
	uid    uint32
	status int32
	_      [100]byte
}

const cldExited = 1 // CLD_EXITED: the child ended by itself

// The kernel writes 128 bytes.
var _ [128]byte = [unsafe.Sizeof(siginfo{})]byte{}

// waitid collects the child of a pidfd if it has ended; info.pid stays 0 if not.
func waitid(pidfd int, info *siginfo) error {
	return unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(info)), unix.WEXITED|unix.WNOHANG, nil)
}
