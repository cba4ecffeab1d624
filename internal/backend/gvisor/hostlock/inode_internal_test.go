package hostlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
)

// openTwice returns an inode that has a file open, and somebody else's descriptor of it.
func openTwice(t *testing.T) (*inode, *descriptor) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	open := func() descriptor {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return descriptor{fd: fd, open: true, reads: true, writes: true}
	}
	n, other := newInode(new(vfs.FileLocks)), open()
	n.ranges = open()
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.forgetRanges()
		other.close()
	})
	return n, &other
}

// TestHostHasWhatIsHeld does by chance what three programs inside and one outside can do with a file,
// and wants each of them to get what Linux would give them, and the host to have what the
// three hold together.
func TestHostHasWhatIsHeld(t *testing.T) {
	const size, outside = 12, 3
	n, other := openTwice(t)
	// A lock elsewhere, so that the file is never without.
	stays := &request{uid: new(int), typ: fslock.ReadLock, at: fslock.LockRange{Start: 100, End: 101}}
	if err := n.lock(background(), stays); err != nil {
		t.Fatal(err)
	}
	uids := []fslock.UniqueID{new(int), new(int), new(vfs.FileDescription)}
	held := [4][size]int16{} // by owner and byte
	for o := range held {
		for b := range size {
			held[o][b] = unix.F_UNLCK
		}
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for step := range 20_000 {
		owner, kind := r.IntN(len(held)), []int16{unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK}[r.IntN(3)]
		at := fslock.LockRange{Start: uint64(r.IntN(size))}
		at.End = at.Start + 1 + uint64(r.IntN(size-int(at.Start)))
		free := kind == unix.F_UNLCK || !inTheWay(held[:], owner, kind, at)
		var err error
		switch {
		case owner == outside:
			err = other.set(kind, at)
		case kind == unix.F_UNLCK:
			err = n.unlock(background(), &request{uid: uids[owner], at: at})
		default:
			typ := fslock.ReadLock
			if kind == unix.F_WRLCK {
				typ = fslock.WriteLock
			}
			err = n.lock(background(), &request{uid: uids[owner], typ: typ, at: at})
		}
		if err != nil != !free {
			t.Fatalf("seed %d, step %d: %d asks for %d of %v: %v, with %v", seed, step, owner, kind, at, err, held)
		}
		if !free {
			continue
		}
		for b := at.Start; b < at.End; b++ {
			held[owner][b] = kind
		}
		if wrong := notHeld(other, held[:outside]); wrong != "" {
			t.Fatalf("seed %d, step %d: %s", seed, step, wrong)
		}
	}
}

func inTheWay(held [][12]int16, owner int, kind int16, at fslock.LockRange) bool {
	for o := range held {
		for b := at.Start; b < at.End; b++ {
			if o != owner && (held[o][b] == unix.F_WRLCK || held[o][b] == unix.F_RDLCK && kind == unix.F_WRLCK) {
				return true
			}
		}
	}
	return false
}

// notHeld says which byte the host has otherwise than inside has it.
func notHeld(other *descriptor, inside [][12]int16) string {
	for b := range inside[0] {
		want := int16(unix.F_UNLCK)
		for _, h := range inside {
			if h[b] == unix.F_WRLCK || h[b] == unix.F_RDLCK && want == unix.F_UNLCK {
				want = h[b]
			}
		}
		got, err := other.test(unix.F_WRLCK, fslock.LockRange{Start: uint64(b), End: uint64(b) + 1})
		if err != nil || got.Type != want {
			return fmt.Sprintf("byte %d is %d on the host, want %d: %v", b, got.Type, want, err)
		}
	}
	return ""
}

// TestReleasedByNoCall: what a process loses by its end is free outside, and what others have of
// the file is not.
func TestReleasedByNoCall(t *testing.T) {
	n, other := openTwice(t)
	dies, stays := &request{uid: new(int), typ: fslock.WriteLock, at: fslock.LockRange{End: 10}}, &request{uid: new(int), typ: fslock.ReadLock, at: fslock.LockRange{Start: 20, End: 30}}
	for _, r := range []*request{dies, stays} {
		if err := n.lock(background(), r); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(at fslock.LockRange) {
		t.Helper()
		f := hostRange(unix.F_WRLCK, at)
		if err := unix.FcntlFlock(uintptr(other.fd), unix.F_OFD_SETLKW, &f); err != nil {
			t.Error(err)
		}
	}
	_ = n.locks.UnlockPOSIX(background(), dies.uid, whole) // as gVisor does it
	wait(dies.at)
	if err := other.set(unix.F_WRLCK, stays.at); !linuxerr.Equals(linuxerr.ErrWouldBlock, err) {
		t.Errorf("what another holds is free: %v", err)
	}
	_ = n.locks.UnlockPOSIX(background(), stays.uid, whole)
	wait(whole)
}

// TestHeldIsNotWrittenDown: a kernel is not saved with a lock that the host would lose.
func TestHeldIsNotWrittenDown(t *testing.T) {
	n, _ := openTwice(t)
	said := func() (what string) {
		defer func() {
			if r := recover(); r != nil {
				what = fmt.Sprint(r)
			}
		}()
		n.rangesWatch.StateSave(state.Sink{})
		return ""
	}
	r := &request{uid: new(int), typ: fslock.ReadLock, at: fslock.LockRange{End: 1}}
	if err := n.lock(background(), r); err != nil {
		t.Fatal(err)
	}
	if got := said(); !strings.Contains(got, "has a lock") {
		t.Errorf("with a lock: %q", got)
	}
	if err := n.unlock(background(), r); err != nil {
		t.Fatal(err)
	}
	if got := said(); got != "" {
		t.Errorf("without: %q", got)
	}
}

// TestBudget: there is an end to ranges, which is not reached by those that were released.
func TestBudget(t *testing.T) {
	n, other := openTwice(t)
	uid := new(int)
	byteAt := func(i int) *request {
		return &request{uid: uid, typ: fslock.WriteLock, at: fslock.LockRange{Start: uint64(2 * i), End: uint64(2*i + 1)}}
	}
	for i := range 4 * maxRanges {
		if err := n.lock(background(), byteAt(i%100)); err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
		if err := n.unlock(background(), byteAt(i%100)); err != nil {
			t.Fatal(err)
		}
	}
	taken := 0
	for ; taken < 2*maxRanges; taken++ {
		if n.lock(background(), byteAt(taken)) != nil {
			break
		}
	}
	if taken < maxRanges-2*slack || taken > maxRanges {
		t.Errorf("there are %d", taken)
	}
	if err := n.unlock(background(), byteAt(0)); err != nil {
		t.Errorf("one is not released when there are as many as there can be: %v", err)
	}
	if err := other.set(unix.F_WRLCK, byteAt(0).at); err != nil {
		t.Errorf("one was released: %v", err)
	}
	for i := 1; n.lock(background(), byteAt(taken+i)) == nil; i++ {
		if i > slack {
			t.Fatalf("one was released, and %d were taken", i)
		}
	}
	if err := n.unlock(background(), &request{uid: uid, at: whole}); err != nil {
		t.Error(err)
	}
	if err := other.set(unix.F_WRLCK, whole); err != nil {
		t.Errorf("after all were released: %v", err)
	}
}

// TestSplit: there is an end to ranges also where releases make them.
func TestSplit(t *testing.T) {
	n, _ := openTwice(t)
	uid := new(int)
	if err := n.lock(background(), &request{uid: uid, typ: fslock.WriteLock, at: whole}); err != nil {
		t.Fatal(err)
	}
	parts := 0
	for ; parts < 4*maxRanges; parts++ {
		if n.unlock(background(), &request{uid: uid, at: fslock.LockRange{Start: uint64(2 * parts), End: uint64(2*parts + 1)}}) != nil {
			break
		}
	}
	if parts < maxRanges || parts > 2*maxRanges {
		t.Errorf("there are %d", parts)
	}
}

// TestShape: what is not as gVisor's is not taken for it.
func TestShape(t *testing.T) {
	type inode struct{ readFD, writeFD int32 }
	for _, v := range []any{0, new(int), &inode{readFD: 1, writeFD: 2}, new(struct{ inode *inode }), struct{}{}} {
		if s := findShape(reflect.TypeOf(v)); s != nil {
			t.Errorf("%T is taken for a dentry: %+v", v, s)
		}
	}
}
