package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

const (
	inotifyBuffer = 64 << 10
	maxQueued     = 1 << 20  // bytes of raw events of one tree
	maxAllQueued  = 16 << 20 // those of all trees
)

// notifier is the one inotify instance of all watchers: the host gives each
// user few, 128 by default. The instance is there while a tree is. The zero
// value is ready.
type notifier struct {
	mu      sync.Mutex
	f       *os.File // nil while there is no tree
	trees   map[*watchTree]struct{}
	watches map[int32][]*watchTree // the kernel has one for each directory
	queued  int                    // bytes of all trees
	failed  error                  // no more events come
}

// join starts to keep events for t.
func (n *notifier) join(t *watchTree) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f == nil {
		if err := n.startLocked(); err != nil {
			return err
		}
	}
	if n.failed != nil {
		return n.failed
	}
	n.trees[t] = struct{}{}
	return nil
}

func (n *notifier) startLocked() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return faultf(connect.CodeResourceExhausted,
			"the kernel allows no more watchers (fs.inotify.max_user_instances): other programs have them: %w", err)
	}
	if err != nil {
		return fmt.Errorf("start inotify: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return fmt.Errorf("start inotify: %w", err)
	}
	n.f, n.trees, n.watches, n.failed = f, make(map[*watchTree]struct{}), make(map[int32][]*watchTree), nil
	go func() {
		buf := make([]byte, inotifyBuffer)
		more := true
		for more {
			err := conn.Read(func(fd uintptr) (done bool) {
				done, more = n.drain(f, int(fd), buf)
				return done
			})
			more = more && err == nil
		}
	}()
	return nil
}

// leave forgets t and its watches.
func (n *notifier) leave(t *watchTree) {
	if f := n.forget(t); f != nil {
		f.Close() // waits for drain, which waits for the lock
	}
}

// forget returns the instance if nothing needs it any more.
func (n *notifier) forget(t *watchTree) *os.File {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.trees[t]; !ok {
		return nil
	}
	delete(n.trees, t)
	n.queued -= len(t.queue)
	t.queue = nil
	if len(n.trees) == 0 {
		f := n.f
		n.f = nil
		return f
	}
	for wd := range t.paths {
		n.removeLocked(wd, t)
	}
	return nil
}

// add watches a path for t. It runs on t's user's worker.
func (n *notifier) add(t *watchTree, p string, mask uint32) (int32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.trees[t]; !ok {
		return 0, ErrClosed
	}
	var got int
	err := n.withFD(func(fd int) (err error) {
		got, err = unix.InotifyAddWatch(fd, p, mask)
		return err
	})
	if err != nil {
		return 0, err
	}
	wd := int32(got)
	if of := n.watches[wd]; !slices.Contains(of, t) {
		n.watches[wd] = append(of, t)
	}
	return wd, nil
}

// remove ends t's part of a watch, which may be gone.
func (n *notifier) remove(wd int32, t *watchTree) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeLocked(wd, t)
}

func (n *notifier) removeLocked(wd int32, t *watchTree) {
	of := n.watches[wd]
	i := slices.Index(of, t)
	if i < 0 {
		return
	}
	if of = slices.Delete(of, i, i+1); len(of) > 0 {
		n.watches[wd] = of
		return
	}
	delete(n.watches, wd)
	_ = n.withFD(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
}

// withFD calls fn with the instance's descriptor.
func (n *notifier) withFD(fn func(fd int) error) error {
	conn, err := n.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// drain moves what the kernel has to the trees that it is for. done is false
// when there is nothing for now, and more when more may come.
func (n *notifier) drain(f *os.File, fd int, buf []byte) (done, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != f {
		return true, false
	}
	got, err := unix.Read(fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false, true
	case errors.Is(err, unix.EINTR):
		return true, true
	case err != nil:
		n.failed = fmt.Errorf("read inotify: %w", err)
		n.failLocked(n.failed)
		return true, false
	}
	for raw := buf[:got]; len(raw) > 0; {
		size := eventSize(raw)
		if size == 0 {
			n.failed = errors.New("read inotify: an event is cut short")
			n.failLocked(n.failed)
			return true, false
		}
		n.sendLocked(raw[:size])
		raw = raw[size:]
	}
	return true, true
}

// eventSize is the size of the first event of raw, 0 if it is not whole.
func eventSize(raw []byte) int {
	if len(raw) < unix.SizeofInotifyEvent {
		return 0
	}
	size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(raw[12:]))
	if size > len(raw) {
		return 0
	}
	return size
}

func (n *notifier) sendLocked(event []byte) {
	wd, mask := int32(binary.NativeEndian.Uint32(event)), binary.NativeEndian.Uint32(event[4:])
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.failLocked(&fault{connect.CodeDataLoss, errLost})
		return
	}
	for _, t := range n.watches[wd] {
		if t.err == nil && len(t.queue)+len(event) > maxQueued {
			t.err = &fault{connect.CodeDataLoss, errLost}
		}
		if t.err == nil {
			n.makeRoomLocked(len(event))
		}
		if t.err == nil {
			t.queue = append(t.queue, event...)
			n.queued += len(event)
		}
		t.wake()
	}
	if mask&unix.IN_IGNORED != 0 { // the kernel's watch is gone
		delete(n.watches, wd)
	}
}

// makeRoomLocked ends the watch for which most waits where there is no room for all: who does not
// collect costs those who do nothing.
func (n *notifier) makeRoomLocked(size int) {
	for n.queued+size > maxAllQueued {
		var most *watchTree
		for t := range n.trees {
			if most == nil || len(t.queue) > len(most.queue) {
				most = t
			}
		}
		if most == nil || len(most.queue) == 0 {
			return
		}
		if most.err == nil {
			most.err = &fault{connect.CodeDataLoss, errLost}
		}
		n.queued -= len(most.queue)
		most.queue = nil
		most.wake()
	}
}

func (n *notifier) failLocked(err error) {
	for t := range n.trees {
		if t.err == nil {
			t.err = err
		}
		t.wake()
	}
}

// take returns the events that wait for t, and otherwise why no more come.
func (n *notifier) take(t *watchTree) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	raw := t.queue
	t.queue = nil
	n.queued -= len(raw)
	if len(raw) == 0 {
		return nil, t.err
	}
	return raw, nil
}

// quiet reports whether no event is on its way to t.
func (n *notifier) quiet(t *watchTree) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(t.queue) > 0 || n.f == nil {
		return n.f == nil
	}
	waiting := 0
	err := n.withFD(func(fd int) (err error) {
		waiting, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return err != nil || waiting == 0
}
