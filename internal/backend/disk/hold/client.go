package hold

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotServed is why nothing can be asked: no process serves there.
var ErrNotServed = errors.New("no process holds the disk images of this home")

// Dir is where the process of the home with that state directory is asked.
func Dir(state string) string { return filepath.Join(state, "disks") }

// Available says why this machine can't hold images, or nil.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("disk images need root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("holding disk images needs FUSE: %w", err)
	}
	return f.Close()
}

// Served returns Dir where a process serves there, or did, and else "".
func Served(state string) string {
	if _, err := os.Lstat(filepath.Join(Dir(state), lockName)); err != nil {
		return ""
	}
	return Dir(state)
}

// Show has the process at dir show a disk image, which is open for reading and writing,
// and returns the file that stands for it. While that is open, or a loop device has it, the
// process keeps what it was given open too, and a lock on that lasts. What waits is told
// by the label, which need not be the image's alone.
func Show(ctx context.Context, dir, label string, image *os.File) (*os.File, error) {
	_, files, err := ask(ctx, dir, order{Do: doShow, Label: label}, image)
	if err == nil && len(files) != 1 {
		closeAll(files)
		err = errors.New("the answer has no file")
	}
	if err != nil {
		return nil, fmt.Errorf("have disk image held: %w", err)
	}
	return files[0], nil
}

// Drop has the images of a label given up where they are held, now or later: what is under
// way with them fails, so that who waits for it can be ended. It is for those that are to
// be removed.
func Drop(ctx context.Context, dir, label string) error {
	_, _, err := ask(ctx, dir, order{Do: doDrop, Label: label})
	return err
}

// Drain lets the images of a label have half of what is kept free, until they are
// detached.
func Drain(ctx context.Context, dir, label string) error {
	_, _, err := ask(ctx, dir, order{Do: doDrain, Label: label})
	return err
}

// Watch tells of what is held and of what is shown, at once and at each change, until ctx ends or the process
// does. While it watches, the process does not leave.
func Watch(ctx context.Context, dir string, tell func([]Held, []Shown)) error {
	c, err := dial(ctx, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := sendOrder(c, order{Do: doWatch}); err != nil {
		return err
	}
	for in := json.NewDecoder(c); ; {
		var a answer
		if err := in.Decode(&a); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		tell(a.Held, a.Shown)
	}
}

// ask gives an order, and returns the answer and the files that came with it.
func ask(ctx context.Context, dir string, o order, files ...*os.File) (answer, []*os.File, error) {
	var a answer
	c, err := dial(ctx, dir)
	if err != nil {
		return a, nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := sendOrder(c, o, files...); err != nil {
		return a, nil, err
	}
	b, got, err := receive(c, maxAnswer)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		closeAll(got)
		got = nil
	}
	return a, got, err
}

// dial connects to a process; a directory's path may be of any length.
func dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(ErrNotServed, err)
	}
	defer at.Close()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), socketName))
	if err != nil {
		return nil, errors.Join(ErrNotServed, err)
	}
	return c.(*net.UnixConn), nil
}

func sendOrder(c *net.UnixConn, o order, files ...*os.File) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return send(c, raw, files)
}

// send writes one line, and descriptors with its first byte.
func send(c *net.UnixConn, line []byte, files []*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds, release, err := descriptors(files)
		if err != nil {
			return err
		}
		defer release()
		rights = unix.UnixRights(fds...)
	}
	line = append(line, '\n')
	n, _, err := c.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = c.Write(line[n:])
	}
	return err
}

// descriptors returns copies of the files' descriptors: File.Fd would have a connection to the kernel
// wait where it is read, for everybody who has it.
func descriptors(files []*os.File) (fds []int, release func(), err error) {
	release = func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	for _, f := range files {
		conn, err := f.SyscallConn()
		if err != nil {
			release()
			return nil, nil, err
		}
		fd := -1
		cerr := conn.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
		if err := errors.Join(cerr, err); err != nil {
			release()
			return nil, nil, err
		}
		fds = append(fds, fd)
	}
	return fds, release, nil
}

// maxAnswer bounds an answer with files, in bytes.
const maxAnswer = 4096

// receive reads one line of at most that many bytes, and the descriptors that came with it.
func receive(c *net.UnixConn, most int) (_ []byte, files []*os.File, err error) {
	line, oob := make([]byte, 0, most), make([]byte, unix.CmsgSpace(4*handed))
	for len(line) < most {
		n, on, _, _, err := c.ReadMsgUnix(line[len(line):most], oob)
		if on > 0 {
			files = append(files, received(oob[:on])...)
		}
		line = line[:len(line)+max(n, 0)] // it is -1 with an error, such as of a process that was killed
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			return line[:i], files, nil
		}
		if err != nil || n == 0 {
			return nil, files, errors.Join(errors.New("the connection ended within a line"), err)
		}
	}
	return nil, files, fmt.Errorf("a line of more than %d bytes", most)
}

// received returns the files of a message, which are closed in processes that are started.
func received(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
