package escape

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queue makes a POSIX message queue.
func (p *planted) queue() error {
	p.facts.Queue = p.facts.Marker + "-queue"
	name := append([]byte(p.facts.Queue), 0)
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])),
		unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666, 0, 0, 0)
	if errno == unix.ENOSYS {
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("make a message queue: %w", errno)
	}
	unix.Close(int(fd))
	p.later(func() { _, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0) })
	return nil
}
