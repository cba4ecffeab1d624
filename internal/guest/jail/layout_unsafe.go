package jail

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// layout is where the program's code lies among its memory.
type layout struct {
	code, codeEnd uintptr
	top           uintptr // the end of all that is mapped
	args, argsEnd uintptr // the first thread's stack, with arguments and environment
	page          uintptr
	foreign       bool // code of others is mapped, too
}

// readLayout looks at this process.
func readLayout() (layout, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return layout{}, fmt.Errorf("read how memory is laid out: %w", err)
	}
	l, err := parseLayout(maps)
	l.page = uintptr(os.Getpagesize())
	return l, err
}

// parseLayout reads /proc/PID/maps.
func parseLayout(maps []byte) (l layout, err error) {
	var owner string
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
		if name == "[stack]" {
			l.args, l.argsEnd = uintptr(start), uintptr(end)
		}
		if !strings.Contains(f[1], "x") || !strings.HasPrefix(name, "/") {
			continue
		}
		switch {
		case owner == "":
			owner, l.code, l.codeEnd = name, uintptr(start), uintptr(end)
		case owner == name:
			l.codeEnd = uintptr(end)
		default:
			l.foreign = true
		}
	}
	l.foreign = l.foreign || owner == "" // not to be told apart
	return l, nil
}

// forget unmaps all but the code and the stack around an address. Where code
// of others is in the process, as a C library's, it unmaps the arguments and
// the environment alone: the kernel may write to memory that such code has
// shown it.
//
//go:nosplit
//go:norace
func (l *layout) forget(stack uintptr) {
	if l.foreign {
		_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, l.args, l.argsEnd-l.args, 0)
		return
	}
	low := (stack - 4*l.page) &^ (l.page - 1)
	high := low + 8*l.page
	a, aEnd, b, bEnd, top := l.code, l.codeEnd, low, high, l.top
	if a > b {
		a, aEnd, b, bEnd = b, bEnd, a, aEnd
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, 0, a, 0)
	if aEnd < b {
		_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, aEnd, b-aEnd, 0)
	}
	if bEnd < top {
		_, _, _ = syscall.RawSyscall(unix.SYS_MUNMAP, bEnd, top-bEnd, 0)
	}
}
