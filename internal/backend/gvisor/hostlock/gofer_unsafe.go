package hostlock

import (
	"reflect"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	gvsync "gvisor.dev/gvisor/pkg/sync"
)

// lockable reports whether file is one of the gofer's that has locks: a regular one, or
// a directory.
func lockable(file *vfs.FileDescription) bool {
	switch reflect.TypeOf(file.Impl()).String() {
	case "*gofer.regularFileFD", "*gofer.directoryFD":
		return true
	}
	return false
}

// shape is where in gVisor's client of the gofer the descriptors are that an inode is
// read and written by. No method leads to them.
type shape struct {
	inode             uintptr // in a dentry
	mu, reads, writes uintptr // in an inode
}

// goferShape finds it in the type of a dentry. A field that is not there, or is of another
// type, is an error, and locks are refused.
var goferShape = func() func(reflect.Type) (*shape, error) {
	var once sync.Once
	var found *shape
	return func(dentry reflect.Type) (*shape, error) {
		once.Do(func() {
			if found = findShape(dentry); found == nil {
				log.Warningf("hostlock: %v is not as gVisor's was: no locks in shares", dentry)
			}
		})
		if found == nil {
			return nil, linuxerr.ENOLCK
		}
		return found, nil
	}
}()

func findShape(dentry reflect.Type) *shape {
	if dentry.Kind() != reflect.Pointer || dentry.Elem().Kind() != reflect.Struct {
		return nil
	}
	in, ok := dentry.Elem().FieldByName("inode")
	if !ok || in.Type.Kind() != reflect.Pointer || in.Type.Elem().Kind() != reflect.Struct {
		return nil
	}
	s := &shape{inode: in.Offset}
	for _, f := range []struct {
		name string
		typ  reflect.Type
		at   *uintptr
	}{
		{"handleMu", reflect.TypeFor[gvsync.RWMutex](), &s.mu},
		{"readFD", reflect.TypeFor[atomicbitops.Int32](), &s.reads},
		{"writeFD", reflect.TypeFor[atomicbitops.Int32](), &s.writes},
	} {
		field, ok := in.Type.Elem().FieldByName(f.name)
		if !ok || field.Type != f.typ {
			return nil
		}
		*f.at = field.Offset
	}
	return s
}

// duplicate returns a descriptor of what file is read and written by, for both where there is
// such a one, or else for what is asked for. A directory has none.
func duplicate(file *vfs.FileDescription, write bool) (descriptor, error) {
	dentry := reflect.ValueOf(file.Dentry().Impl())
	s, err := goferShape(dentry.Type())
	if err != nil {
		return descriptor{}, err
	}
	inode := *(*unsafe.Pointer)(unsafe.Add(dentry.UnsafePointer(), s.inode))
	// Another open may close them and put others in their place, with this held.
	mu := (*gvsync.RWMutex)(unsafe.Add(inode, s.mu))
	mu.RLock()
	defer mu.RUnlock()
	r := int((*atomicbitops.Int32)(unsafe.Add(inode, s.reads)).Load())
	w := int((*atomicbitops.Int32)(unsafe.Add(inode, s.writes)).Load())
	d := descriptor{fd: r, reads: r >= 0, writes: r == w && r >= 0}
	if w >= 0 && r != w && (write || r < 0) {
		d = descriptor{fd: w, writes: true}
	}
	if write && !d.writes || d.fd < 0 {
		return descriptor{}, linuxerr.ENOLCK
	}
	if d.fd, err = unix.Dup(d.fd); err != nil {
		return descriptor{}, linuxerr.ENOLCK
	}
	d.open = true
	return d, nil
}
