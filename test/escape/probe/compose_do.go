package main

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// errNothing is for a step that lacks what it needs.
var errNothing = errors.New("nothing to do it with")

// do takes one step, by the thread that it runs on.
func (s *sequence) do(st facts.Step) error {
	switch st.Op {
	case "mount":
		return unix.Mount(st.A, st.B, st.Kind, uintptr(st.N), st.Data)
	case "umount":
		return unix.Unmount(st.B, int(st.N))
	case "chroot":
		return unix.Chroot(st.B)
	case "pivot":
		_ = unix.Mkdir(st.B, 0o755)
		return unix.PivotRoot(st.A, st.B)
	case "unshare":
		return unix.Unshare(int(st.N))
	case "setns":
		return s.enter(st)
	case "hold":
		return s.hold(st.A)
	case "fchdir":
		if len(s.held) == 0 {
			return errNothing
		}
		return unix.Fchdir(s.held[len(s.held)-1])
	case "up":
		for range 16 {
			if err := unix.Chdir(".."); err != nil {
				return err
			}
		}
		return nil
	case "here":
		return nil
	case "handle":
		return s.handle(st)
	case "tree":
		return tree(st)
	case "fsmount":
		return fsmount(st, s.scratch)
	}
	return s.alter(st)
}

// alter takes a step that changes files.
func (s *sequence) alter(st facts.Step) error {
	s.made[path.Clean(st.B)] = true
	switch st.Op {
	case "write":
		return s.write(st.B, 16)
	case "fill":
		return s.write(st.B, int(st.N))
	case "mkdir":
		return unix.Mkdir(st.B, uint32(st.N))
	case "mknod":
		return unix.Mknod(st.B, uint32(st.N), int(unix.Mkdev(1, 3)))
	case "chmod":
		return unix.Chmod(st.B, uint32(st.N))
	case "chown":
		return unix.Lchown(st.B, 1000, 1000)
	case "setxattr":
		return errors.Join(unix.Lsetxattr(st.B, "user.composed", []byte("x"), 0), unix.Lsetxattr(st.B, "trusted.overlay.opaque", []byte("y"), 0))
	case "rename":
		return unix.Rename(st.A, st.B)
	case "link":
		return unix.Link(st.A, st.B)
	case "symlink":
		return unix.Symlink(st.A, st.B)
	case "unlink":
		if err := unix.Unlink(st.B); err == nil {
			return nil
		}
		return unix.Rmdir(st.B)
	case "bind":
		return s.listen(st.B)
	case "connect":
		return connect(st.B)
	}
	return errNothing
}

// most is what a sequence writes, in bytes.
const most = 12 << 20

func (s *sequence) write(p string, n int) error {
	if s.big += n; s.big > most {
		return errNothing
	}
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNothing
	}
	block := make([]byte, min(n, 1<<20))
	for i := range block {
		block[i] = byte('a' + i%26)
	}
	for n > 0 {
		k, err := unix.Write(fd, block[:min(n, len(block))])
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

func (s *sequence) hold(p string) error {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		s.held = append(s.held, fd)
	}
	return err
}

func (s *sequence) enter(st facts.Step) error {
	fd, err := unix.Open(st.A, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, int(st.N))
}

// handle asks for the file handle of A and opens it, or one beside it, on the
// mount B.
func (s *sequence) handle(st facts.Step) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, st.A, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return err
	}
	b := h.Bytes()
	if st.N > 0 && len(b) > 0 { // small numbers are those of roots
		b[0] += byte(st.N - 5)
	}
	at, err := unix.Open(st.B, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.OpenByHandleAt(at, unix.NewFileHandle(h.Type(), b), unix.O_PATH)
	if err == nil {
		s.held = append(s.held, fd)
	}
	return err
}

func tree(st facts.Step) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, st.A, uint(st.N)|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, st.B, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// fsmount makes a file system by the newer calls; an overlay has A below and
// Data above.
func fsmount(st facts.Step, scratch string) error {
	fd, err := unix.Fsopen(st.Kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st.Kind == "overlay" {
		err = errors.Join(unix.FsconfigSetString(fd, "lowerdir", st.A), unix.FsconfigSetString(fd, "upperdir", st.Data),
			unix.FsconfigSetString(fd, "workdir", path.Join(scratch, "w")))
		if err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return err
	}
	m, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(m)
	return unix.MoveMount(m, "", unix.AT_FDCWD, st.B, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func (s *sequence) listen(p string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	s.held = append(s.held, fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: p}); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

func connect(p string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: p}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	return nil
}
