package jail

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// layout is where the program's code lies among its memory.
type layout struct {
	code, codeEnd uintptr
	top           uintptr        // the end of all that is mapped
	args, argsEnd uintptr        // the first thread's stack, with arguments and environment
	argv          unsafe.Pointer // the first argument, in there
	page          uintptr
	rest          uintptr // see rest
	foreign       bool    // code of others is mapped, too
}

// readLayout looks at this process.
func readLayout() (layout, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return layout{}, fmt.Errorf("read how memory is laid out: %w", err)
	}
	l, err := parseLayout(maps, reflect.ValueOf(readLayout).Pointer())
	l.page = uintptr(os.Getpagesize())
	if len(os.Args) > 0 && os.Args[0] != "" {
		// Go's strings of arguments are the kernel's own bytes.
		l.argv = unsafe.Pointer(unsafe.StringData(os.Args[0]))
	}
	return l, err
}

// parseLayout reads the /proc/PID/maps of a program that has code at pc.
func parseLayout(maps []byte, pc uintptr) (l layout, err error) {
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 5 {
			return l, fmt.Errorf("read how memory is laid out: %.80q", lines.Text())
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || start >= end {
			return l, fmt.Errorf("read how memory is laid out: %.80q", lines.Text())
		}
		name := ""
		if len(f) > 5 {
			name = f[5]
		}
		if name == "[vsyscall]" || start >= 1<<56 { // the kernel's
			continue
		}
		l.top = max(l.top, uintptr(end))
		switch {
		case name == "[stack]":
			l.args, l.argsEnd = uintptr(start), uintptr(end)
		case !strings.Contains(f[1], "x"):
		case uintptr(start) <= pc && pc < uintptr(end):
			l.code, l.codeEnd = uintptr(start), uintptr(end)
		case f[4] != "0": // of a file; the kernel's own have none
			l.foreign = true
		}
	}
	l.foreign = l.foreign || l.codeEnd == 0 // not to be told apart
	return l, nil
}

// rename overwrites the arguments and the environment by a name, which is at
// most 15 bytes long. They stay mapped: a kernel's /proc/PID/cmdline can fail
// where they are not, and programs that list processes with it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *layout) rename(name *byte) {
	argv := uintptr(l.argv)
	if l.foreign || argv < l.args || argv >= l.argsEnd {
		return
	}
	size := l.argsEnd - argv
	for i := uintptr(0); i < size; i++ {
		*(*byte)(unsafe.Add(l.argv, i)) = 0
	}
	for i := uintptr(0); i < min(size, 15); i++ {
		c := *(*byte)(unsafe.Add(unsafe.Pointer(name), i))
		if c == 0 {
			return
		}
		*(*byte)(unsafe.Add(l.argv, i)) = c
	}
}

// forget unmaps all but the code, what rests is in, the pages of the arguments,
// and the stack around an address. Where code of others is in the process, as a C
// library's, it unmaps the arguments and the environment alone: the kernel
// may write to memory that such code has shown it.
//
//go:nosplit
//go:norace
func (l *layout) forget(stack uintptr) {
	if l.foreign {
		_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, l.args, l.argsEnd-l.args, 0)
		return
	}
	low := (stack - 4*l.page) &^ (l.page - 1)
	keep := [5][2]uintptr{{l.code, l.codeEnd}, {low, low + 8*l.page}, {l.top, l.top}, {l.top, l.top}, {l.rest, l.rest + l.page}}
	if argv := uintptr(l.argv); argv >= l.args && argv < l.argsEnd {
		keep[2] = [2]uintptr{argv &^ (l.page - 1), l.argsEnd}
	}
	for i := 1; i < len(keep); i++ { // in order
		for j := i; j > 0 && keep[j][0] < keep[j-1][0]; j-- {
			keep[j], keep[j-1] = keep[j-1], keep[j]
		}
	}
	from := uintptr(0)
	for i := range keep {
		if keep[i][0] > from {
			_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, from, keep[i][0]-from, 0)
		}
		if keep[i][1] > from {
			from = keep[i][1]
		}
	}
}
