package hold

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// buffer holds one request. Its data is aligned as direct I/O wants it.
type buffer struct {
	head [inHeader + writeHead]byte
	data []byte
}

// newBuffer has more than a request has, for the kernel wants room for the longest. All of its
// memory is there from the start: where a process is killed while the kernel copies a
// request to a page that has yet to be made, the kernel fails that request.
func newBuffer() (*buffer, error) {
	data, err := unix.Mmap(-1, 0, maxTransfer+pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	b := &buffer{data: data}
	for i := range b.head {
		b.head[i] = 0xff
	}
	return b, nil
}

// underWay is how many requests of one image are worked on at once; each takes a buffer. So
// an image takes up to 16 MiB while as many of the longest are, and none once it is closed.
const underWay = 16

// image is one disk image, shown as a file system of one file that a loop device has open.
// Each has a connection of its own to the kernel, so that one that is held holds no
// other.
type image struct {
	label  string
	id     string   // see Shown
	lock   *os.File // as it was handed over: a lock on it lasts as long as this
	file   *os.File // the same image, for reading and writing
	size   int64
	fuse   *os.File // /dev/fuse
	name   string   // of the file in its file system
	server *Server

	slots    chan *buffer // as many as there may be requests; nil: one that is not made yet
	draining atomic.Bool  // it may use half of what is kept free
	doomed   atomic.Bool  // it is given up rather than held
	broken   atomic.Bool  // the file system in it noted an error
	closed   chan struct{}
	once     sync.Once

	// Guarded by the server's mu.
	waiting int
	bytes   int64
	since   int64 // Unix nanoseconds
}

// control calls f with the image's descriptor, which is not closed meanwhile.
func (im *image) control(f func(fd int) error) error {
	conn, err := im.file.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(cerr, err)
}

// newImage opens an image that is to be shown. lock is its from then on, also after an error.
func newImage(label, id string, lock *os.File, s *Server) (_ *image, err error) {
	im := &image{label: label, id: id, lock: lock, server: s, slots: make(chan *buffer, underWay), closed: make(chan struct{})}
	for range underWay {
		im.slots <- nil
	}
	defer func() {
		if err != nil {
			im.close()
		}
	}()
	path := fmt.Sprintf("/proc/self/fd/%d", lock.Fd())
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) { // this file system has none
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	im.file = os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is not a regular file")
	}
	im.size, im.name = st.Size, Name(st.Dev, st.Ino)
	return im, nil
}

// show makes the file system, in nobody's mount namespace, and opens the image in it.
func (im *image) show() (*os.File, error) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	mount, err := mountFuse(fuse)
	im.fuse = os.NewFile(uintptr(fuse), "/dev/fuse") // which can be waited for once it is mounted
	if err != nil {
		return nil, fmt.Errorf("show disk image: %w", err)
	}
	defer unix.Close(mount)
	im.server.work.Go(im.serve)
	fd, err := unix.Openat(mount, im.name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("show disk image: %w", err)
	}
	return os.NewFile(uintptr(fd), im.name), nil
}

// mountFuse makes a file system of an open /dev/fuse, which is mounted nowhere.
func mountFuse(fuse int) (int, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{
		{"source", "carboy"}, {"fd", fmt.Sprint(fuse)}, {"rootmode", "40000"}, {"user_id", "0"}, {"group_id", "0"},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return 0, fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return 0, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// serve answers the kernel until the image is closed.
func (im *image) serve() {
	var answering sync.WaitGroup
	defer func() {
		im.close()
		im.server.forget(im)
		answering.Wait()
		im.release()
	}()
	conn, err := im.fuse.SyscallConn()
	if err != nil {
		return
	}
	for {
		b := <-im.slots
		if b == nil {
			if b, err = newBuffer(); err != nil {
				im.slots <- nil
				return
			}
		}
		var n int
		var rerr error
		err := conn.Read(func(fd uintptr) bool {
			n, rerr = unix.Readv(int(fd), [][]byte{b.head[:], b.data})
			return !errors.Is(rerr, unix.EAGAIN)
		})
		switch {
		case err != nil || errors.Is(rerr, unix.ENODEV):
			im.slots <- b
			return
		case rerr != nil: // interrupted, or taken back before it was read
			im.slots <- b
			continue
		}
		r, ok := parse(b, n)
		if !ok {
			im.slots <- b
			return
		}
		answering.Go(func() {
			defer func() { im.slots <- b }()
			im.answer(r)
		})
	}
}

// release gives the buffers back. No request may be under way.
func (im *image) release() {
	for range underWay {
		if b := <-im.slots; b != nil {
			_ = unix.Munmap(b.data)
		}
	}
}

// close gives the image up: what is under way, and what comes, fails.
func (im *image) close() {
	im.once.Do(func() {
		close(im.closed)
		for _, f := range []*os.File{im.fuse, im.file, im.lock} {
			if f != nil {
				_ = f.Close()
			}
		}
	})
}

// reply answers a request.
func (im *image) reply(r request, err error, parts ...[]byte) {
	errno := errnoOf(err)
	if errno != 0 {
		parts = nil
	}
	head := answerHead(r.unique, errno, parts)
	conn, err := im.fuse.SyscallConn()
	if err != nil {
		return
	}
	// Nobody is to be told where it fails: the image was closed, or the request taken back.
	_ = conn.Control(func(fd uintptr) { _, _ = unix.Writev(int(fd), append([][]byte{head}, parts...)) })
}

func (im *image) answer(r request) {
	switch r.op {
	case opForget, opBatchForget, opInterrupt: // which nobody waits for
	case opInit:
		im.reply(r, nil, initAnswer())
	case opLookup:
		if r.node != rootNode || string(r.body)+string(r.data) != im.name+"\x00" {
			im.reply(r, unix.ENOENT)
			return
		}
		im.reply(r, nil, entryAnswer(), attributes(imageNode, im.size))
	case opGetattr, opSetattr:
		im.reply(r, nil, validAnswer(), attributes(r.node, im.size))
	case opOpen:
		im.reply(r, nil, openAnswer())
	case opRead:
		n, err := im.file.ReadAt(r.buf.data[:min(int(r.u32(16)), maxTransfer)], int64(r.u64(8)))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		im.reply(r, err, r.buf.data[:n])
	case opWrite:
		err := im.write(r.data, int64(r.u64(8)))
		im.reply(r, err, writeAnswer(len(r.data)))
		if err == nil {
			im.look(r.data, int64(r.u64(8)))
		}
	case opFsync:
		im.reply(r, im.control(unix.Fdatasync))
	case opFallocate:
		im.reply(r, im.allocate(r.u32(24), int64(r.u64(8)), int64(r.u64(16))))
	case opStatfs:
		im.reply(r, nil, make([]byte, statfsLength))
	case opFlush, opDestroy:
		im.reply(r, nil)
	case opRelease: // its loop device let go
		im.reply(r, nil)
		im.close()
	default:
		im.reply(r, unix.ENOSYS)
	}
}

// What an ext2, ext3 or ext4 file system keeps of its state, and where.
const (
	stateAt    = 1024 + 0x3A
	stateError = 2
)

// look notes what a write says of the state of the file system in the image.
func (im *image) look(data []byte, at int64) {
	i := stateAt - at
	if i < 0 || i >= int64(len(data)) {
		return
	}
	if broken := data[i]&stateError != 0; im.broken.Swap(broken) != broken {
		im.server.mu.Lock()
		im.server.announceLocked()
		im.server.mu.Unlock()
	}
}

func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// namePrefix is of the file that stands for an image.
const namePrefix = "carboy-"

// Name is what the file that stands for an image is called, by the image's own device and
// inode: whoever finds a loop device of that name knows which image it has.
func Name(dev, ino uint64) string {
	return fmt.Sprintf("%s%x-%x", namePrefix, dev, ino)
}
