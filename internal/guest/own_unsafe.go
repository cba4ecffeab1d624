package guest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownProgram makes every page of the agent's program that is mapped from its
// file the process's own, by writing into it what it holds. The file is the
// host's, and a kernel that is to be written to disk can't keep its pages.
func ownProgram() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read what is mapped: %w", err)
	}
	var errs []error
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var from, to uintptr
		var mode, offset, device string
		var inode uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %d", &from, &to, &mode, &offset, &device, &inode); err != nil {
			errs = append(errs, fmt.Errorf("read what is mapped: %.80q: %w", lines.Text(), err))
			continue
		}
		if inode != 0 && strings.HasSuffix(mode, "p") {
			errs = append(errs, ownPages(from, to, mode))
		}
	}
	return errors.Join(errs...)
}

// ownPages writes to each page from one address to another, which others may
// be reading, executing or writing: it adds nothing to a word of it, at once. They are
// no object of Go's, which the race detector's check of pointers takes them for.
//
//go:nocheckptr
func ownPages(from, to uintptr, mode string) error {
	protection := 0
	for i, p := range []int{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if mode[i] != '-' {
			protection |= p
		}
	}
	pages := unsafe.Slice((*byte)(mapped(from)), to-from)
	if err := unix.Mprotect(pages, protection|unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("make the program's pages writable: %w", err)
	}
	for at := 0; at < len(pages); at += os.Getpagesize() {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&pages[at])), 0)
	}
	if err := unix.Mprotect(pages, protection); err != nil {
		return fmt.Errorf("make the program's pages as they were: %w", err)
	}
	return nil
}

// mapped is an address of what is mapped and no object of Go's.
func mapped(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
