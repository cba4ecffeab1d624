package hold

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// kept is what a process that is killed leaves an image with: the connection to the kernel,
// which waits for answers as long as somebody has it, and the image's file without its lock.
type kept struct {
	shown Shown
	files []*os.File
	tries int // processes that ended while they were given it
}

// Keeper has a second hand on the images of a process, so that another process can go on
// where the first is killed: whoever reads or writes waits meanwhile, and no answer is
// lost. Its methods may be called from several goroutines. The kernel has to be 6.9 or
// later: one before does not say again what it asked the first.
type Keeper struct {
	dir string

	mu     sync.Mutex
	images map[string]*kept // by Shown.ID
}

// NewKeeper keeps the images of the process at dir.
func NewKeeper(dir string) *Keeper { return &Keeper{dir: dir, images: map[string]*kept{}} }

// Follow takes hold of what the process shows, and lets go of all else. An error says of
// which image it has no hold.
func (k *Keeper) Follow(ctx context.Context, shown []Shown) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.images
	k.images = make(map[string]*kept, len(shown))
	for _, one := range shown {
		if one.ID == "" || one.Dead { // a process of an older version hands nothing over
			continue
		}
		had := before[one.ID]
		delete(before, one.ID)
		if had == nil {
			_, files, herr := ask(ctx, k.dir, order{Do: doHand, ID: one.ID})
			if herr != nil || len(files) != handed {
				closeAll(files)
				err = errors.Join(err, herr)
				continue
			}
			had = &kept{files: files}
		}
		had.shown, had.tries = one, 0
		k.images[one.ID] = had
	}
	for _, gone := range before {
		closeAll(gone.files)
	}
	return err
}

// Restore gives all images to the process that serves by now. Those that the error is of
// are dead: what is asked of them fails from then on. Where the error is ErrNotServed, that
// process has ended too, and the next is to be given what is left.
func (k *Keeper) Restore(ctx context.Context) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, one := range k.images {
		a, _, terr := ask(ctx, k.dir, order{Do: doTake, ID: id, Label: one.shown.Label, Broken: one.shown.Broken}, one.files...)
		if terr == nil {
			continue
		}
		terr = fmt.Errorf("image of %s: %w", one.shown.Label, terr)
		if one.tries++; a.Error == "" && one.tries < mostTries {
			err = errors.Join(err, ErrNotServed, terr)
			continue
		}
		err = errors.Join(err, terr)
		closeAll(one.files)
		delete(k.images, id)
	}
	return err
}

// mostTries bounds how many processes may end while they are given one image.
const mostTries = 5

// Drop lets go of the images of a label: where the process closes one, what waits for it fails.
func (k *Keeper) Drop(label string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, one := range k.images {
		if one.shown.Label == label {
			closeAll(one.files)
			delete(k.images, name)
		}
	}
}

// Close lets go of all.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.images {
		closeAll(one.files)
	}
	k.images = nil
}

// handed is how many descriptors an image has that are handed over: its connection and its file.
const handed = 2

// hand gives a client what it needs to keep an image.
func (s *Server) hand(c *net.UnixConn, id string) error {
	found := s.find(id)
	if found == nil {
		return fmt.Errorf("image %.64q: it is not shown", id)
	}
	return reply(c, answer{}, found.fuse, found.file)
}

// find returns the image that is shown by that ID, or nil.
func (s *Server) find(id string) *image {
	s.mu.Lock()
	defer s.mu.Unlock()
	for im := range s.images {
		if im.id == id && im.fuse != nil {
			return im
		}
	}
	return nil
}

// take shows an image on, which another process showed until it was killed. The files
// are its own from then on, also after an error. What it took before, it has.
func (s *Server) take(o order, files []*os.File) error {
	if s.find(o.ID) != nil {
		closeAll(files)
		return nil
	}
	if len(files) != handed {
		closeAll(files)
		return errors.New("it takes a connection and a file")
	}
	fuse, file := files[0], files[1]
	defer file.Close()
	lock, err := lockAnew(file)
	if err != nil {
		fuse.Close()
		return err
	}
	im, err := newImage(o.Label, o.ID, lock, s)
	if err != nil {
		fuse.Close()
		return err
	}
	im.fuse = fuse
	if s.again(im) {
		im.close()
		return errors.New("it was shown again since, by a process that was killed too")
	}
	im.broken.Store(o.Broken)
	if err := resend(fuse); err != nil {
		im.close()
		return err
	}
	s.add(im)
	s.work.Go(im.serve)
	return nil
}

// again reports whether what is to be taken is not what was shown of that image last: its
// connection is a former one, which nobody waits for.
func (s *Server) again(im *image) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.dead[im.name]
	return ok && last.id != im.id
}

// lockAnew opens an image for its lock, which nobody may have.
func lockAnew(file *os.File) (*os.File, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	cerr := conn.Control(func(of uintptr) {
		fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", of), unix.O_RDWR|unix.O_CLOEXEC, 0)
	})
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("open disk image: %w", err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("lock disk image: %w", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// resend has the kernel ask again for all that was not answered.
func resend(fuse *os.File) error {
	const notifyResend = 7 // FUSE_NOTIFY_RESEND, in the place of an error
	note := make([]byte, outHeader)
	binary.NativeEndian.PutUint32(note, outHeader)
	binary.NativeEndian.PutUint32(note[4:], notifyResend)
	conn, err := fuse.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) { _, err = unix.Write(int(fd), note) })
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("have the kernel ask again, which it can from version 6.9 on: %w", err)
	}
	return nil
}
