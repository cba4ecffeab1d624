package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attach begins to trace a process. This process's end ends it.
func attach(pid int) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	return unix.PtraceSeize(pid)
}

// vmRead reads another process's memory.
func vmRead(pid int, addr uintptr, buf []byte) (int, error) {
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	remote := []unix.RemoteIovec{{Base: addr, Len: len(buf)}}
	return unix.ProcessVMReadv(pid, local, remote, 0)
}

// raw makes a system call by number; what its arguments point to is the
// caller's to keep.
func raw(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// kept is what pointer gave the address of: it stays where it is.
var kept [][]byte

// pointer is the address of b's first byte, for raw.
func pointer(b []byte) uintptr {
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// text is a string for raw: bytes with a NUL at the end.
func text(s string) []byte { return append([]byte(s), 0) }

// clone3 forks with flags. The child ends at once.
func clone3(flags uintptr) error {
	args := [8]uint64{0: uint64(flags), 4: uint64(unix.SIGCHLD)} // CLONE_ARGS_SIZE_VER0
	pid, err := raw(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	if err != nil {
		return err
	}
	if pid == 0 {
		for {
			_, _ = raw(unix.SYS_EXIT_GROUP, 0)
		}
	}
	_, err = unix.Wait4(int(pid), nil, 0, nil)
	return err
}
