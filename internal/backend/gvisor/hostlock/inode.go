package hostlock

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// inode is a file of a share that somebody inside asks for locks of, or has some.
type inode struct {
	locks *vfs.FileLocks // gVisor's own: who holds what inside
	users int            // calls that have it, and one while it is watched; guarded by inodes

	// mu is held while a lock of the file is taken or released by a call. It is taken
	// before gVisor's own. Locks are released without it by processes that end, and by files
	// that are closed.
	mu                       sync.Mutex
	ranges, wholes           descriptor // by which the host's locks are held: of fcntl, and of flock
	rangesWatch, wholesWatch watch
	budget                   budget        // of ranges
	following                bool          // follow runs
	wake                     chan struct{} // something was released inside, by whomever
	released                 chan struct{} // closed when something was, and made anew
}

var inodes = struct {
	sync.Mutex
	of map[*vfs.FileLocks]*inode
}{of: make(map[*vfs.FileLocks]*inode)}

// enter returns the inode of a file for which has is true. It is to be left.
func enter(file *vfs.FileDescription) *inode {
	locks := file.Impl().(interface{ Locks() *vfs.FileLocks }).Locks()
	inodes.Lock()
	defer inodes.Unlock()
	n := inodes.of[locks]
	if n == nil {
		n = newInode(locks)
		inodes.of[locks] = n
	}
	n.users++
	return n
}

func newInode(locks *vfs.FileLocks) *inode {
	n := &inode{locks: locks, wake: make(chan struct{}, 1), released: make(chan struct{})}
	n.rangesWatch.n, n.wholesWatch.n = n, n
	return n
}

func (n *inode) leave() {
	inodes.Lock()
	defer inodes.Unlock()
	if n.users--; n.users == 0 {
		delete(inodes.of, n.locks)
	}
}

// announce tells those who wait that something was released.
func (n *inode) announce() {
	close(n.released)
	n.released = make(chan struct{})
}

// How long somebody waits, at first and at most, before the host is asked again: it tells
// nobody of a release.
const (
	firstDelay = time.Millisecond
	lastDelay  = 32 * time.Millisecond
)

// wait calls try until it does not say that another holds the lock. It waits in between if it
// may, and until a signal comes.
func (n *inode) wait(t *kernel.Task, may bool, try func() error) error {
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		n.mu.Lock()
		released := n.released
		n.mu.Unlock()
		err := try()
		if !may || !linuxerr.Equals(linuxerr.ErrWouldBlock, err) {
			return err
		}
		_, err = t.BlockWithTimeout(released, true, delay)
		if err != nil && !linuxerr.Equals(linuxerr.ETIMEDOUT, err) {
			return linuxerr.ERESTARTSYS
		}
	}
}
