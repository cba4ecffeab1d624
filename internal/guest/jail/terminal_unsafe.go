package jail

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is a terminal's, in characters.
type Size struct{ Cols, Rows uint16 }

// Terminal is a pseudo-terminal of the commands' own /dev/pts.
type Terminal struct {
	Master *os.File // non-blocking: reads and writes wait without a thread
	// Slave is to be closed when the command has ended. Closed before, a command that closes its
	// own, as cat does at its end, would have left the terminal: that ends, and its leader is
	// hung up on.
	Slave *os.File
}

// OpenTerminal makes a terminal that belongs to u.
func (j *Jail) OpenTerminal(u User, size Size) (*Terminal, error) {
	_, w, err := j.worker(u.UID)
	if err != nil {
		return nil, err
	}
	var master, slave int
	if doErr := w.do(func() { master, slave, err = openTerminal() }); doErr != nil {
		return nil, doErr
	}
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t := &Terminal{
		Master: os.NewFile(uintptr(master), "terminal"),
		Slave:  os.NewFile(uintptr(slave), "terminal"),
	}
	// Programs that open the terminal again by its name need it to be theirs.
	err = unix.Fchown(slave, int(u.UID), -1)
	if err == nil {
		err = t.Resize(size)
	}
	if err != nil {
		_, _ = t.Master.Close(), t.Slave.Close()
		return nil, fmt.Errorf("prepare a terminal: %w", err)
	}
	return t, nil
}

// openTerminal runs on a worker's thread.
func openTerminal() (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	if slave, err = openSlave(master); err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

func openSlave(master int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	unlocked := int32(0)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlocked))); e != 0 {
		return -1, e
	}
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if e == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(int(n)), flags, 0)
}

// Resize sets the size and tells the programs on the terminal. A zero side is
// taken as that of an 80 by 24 screen.
func (t *Terminal) Resize(s Size) error {
	if s.Cols == 0 {
		s.Cols = 80
	}
	if s.Rows == 0 {
		s.Rows = 24
	}
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
}

// Foreground returns the process group that has the terminal, or 0 where the
// kernel does not tell.
func (t *Terminal) Foreground() int {
	group := 0
	_ = t.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return max(group, 0)
}

// Type types the key that has the terminal signal its foreground: INT and QUIT have one,
// where the programs on it let keys signal. It reports whether it did.
func (t *Terminal) Type(sig syscall.Signal) bool {
	at, ok := map[syscall.Signal]int{unix.SIGINT: unix.VINTR, unix.SIGQUIT: unix.VQUIT}[sig]
	if !ok {
		return false
	}
	return t.control(func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		key := mode.Cc[at]
		if mode.Lflag&unix.ISIG == 0 || key == 0 {
			return unix.ENOTSUP
		}
		_, err = unix.Write(fd, []byte{key}) // it does not wait: a terminal that takes nothing is not to be waited for
		return err
	}) == nil
}

func (t *Terminal) control(f func(fd int) error) error {
	raw, err := t.Master.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
