package jail

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rest is a page with code of its own, in which an infant spends its life once it has
// forgotten the program. The code unmaps the program's, closes the pipe that init has
// answered over, and then waits for ever: no page of the program's file is left in that
// process, which a kernel that is to be written to disk could not keep.
type rest struct {
	page []byte
	// call enters it. It is in the page, too.
	call func()
}

// restCall is where the page has what Go calls a function by: its address.
const restCall = 256

func newRest(l layout, report uintptr) (*rest, error) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("make a page for init: %w", err)
	}
	r := &rest{page: page}
	copy(page, restCode(uint64(l.code), uint64(l.codeEnd-l.code), uint32(report)))
	start := unsafe.Pointer(unsafe.SliceData(page))
	binary.NativeEndian.PutUint64(page[restCall:], uint64(uintptr(start)))
	target := unsafe.Add(start, restCall)
	r.call = *(*func())(unsafe.Pointer(&target))
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		r.close()
		return nil, fmt.Errorf("make a page for init: %w", err)
	}
	return r, nil
}

func (r *rest) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.page))) }

func (r *rest) close() { _ = unix.Munmap(r.page) }
