package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's seccomp_notif and its answer.
type notice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

const (
	notifRecv = 0xc0502100
	notifSend = 0xc0182101
	// passed is what a call is answered that reached our own filter's
	// supervisor. No list answers it.
	passed = unix.EXFULL
)

// judge asks the filters above us about calls, and makes none of them. A
// filter of our own hands each over to a supervisor, who answers it; but of
// several filters the strictest answer counts, and an error or death is
// stricter than handing over. So the supervisor's answer comes back for those
// calls alone that every filter above lets through.
func judge(calls []call) ([]verdict, error) {
	type listening struct {
		fd  int
		err error
	}
	ready := make(chan listening)
	done := make(chan []verdict, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter dies with the thread
		fd, err := listen(calls)
		ready <- listening{fd, err}
		if err != nil {
			return
		}
		out := make([]verdict, len(calls))
		for i, c := range calls {
			_, err := raw(c.nr, c.args...)
			out[i] = verdict{errors.Is(err, passed), err}
		}
		done <- out
	}()
	l := <-ready
	if l.err != nil {
		return nil, l.err
	}
	go supervise(l.fd)
	return <-done, nil
}

// listen installs the filter on this thread.
func listen(calls []call) (int, error) {
	p := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for i, c := range calls {
		p = append(p, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(c.nr), Jt: uint8(len(calls) - i),
		})
	}
	p = append(p,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if errno != 0 {
		return 0, fmt.Errorf("ask the filters: %w", errno)
	}
	return int(fd), nil
}

// supervise answers what arrives, until the process ends.
func supervise(fd int) {
	for {
		var n notice
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifRecv, uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT {
				continue
			}
			return
		}
		a := answer{id: n.id, error: -int32(passed)}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifSend, uintptr(unsafe.Pointer(&a)))
	}
}
