package hostlock

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
)

// How many locks of ranges a sandbox may have on the host, whose kernel counts the memory that
// they take to nobody, and goes through those of a file one by one for each that is taken of
// it. A release can make more of them than there were, and yet is what makes room: it fails later.
const (
	maxRanges  = 8192
	mostRanges = 2 * maxRanges
)

// slack is how far the count of a file's ranges may be from what they are before they are counted.
const slack = 16

// counted is what all files have by their counts.
var counted atomic.Int64

// budget counts the ranges of a file, never too few: they are counted in earnest when the
// count has doubled.
type budget struct {
	now, next int
}

func (b *budget) put(n int) {
	counted.Add(int64(n - b.now))
	b.now = n
}

// room makes room for a change of a range, which can split one that is there in three; ENOLCK:
// there would be more than most.
func (n *inode) room(r fslock.LockRange, most int64) error {
	if r == whole { // which leaves one, or none
		return nil
	}
	n.budget.put(n.budget.now + 2)
	if n.budget.now > n.budget.next || counted.Load() > most {
		n.recount(2)
	}
	if counted.Load() > most {
		n.recountOthers()
	}
	if counted.Load() > most {
		n.recount(0)
		return linuxerr.ENOLCK
	}
	return nil
}

// recountOthers counts what is held of all other files that nobody is at.
func (n *inode) recountOthers() {
	inodes.Lock()
	defer inodes.Unlock()
	for _, o := range inodes.of {
		if o != n && o.mu.TryLock() {
			o.recount(0)
			o.mu.Unlock()
		}
	}
}

// recount counts what is held, and adds what may come.
func (n *inode) recount(more int) {
	parts := 0
	for at := whole; ; parts++ {
		held, _, ok := n.next(at)
		if !ok {
			break
		}
		at.Start = held.End
	}
	n.budget.put(parts + more)
	n.budget.next = 2*parts + slack
}
