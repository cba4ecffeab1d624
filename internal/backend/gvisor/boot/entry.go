package boot

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// entry returns the program that gVisor executes first. All that it does is to
// execute the agent's, by the descriptor that the agent inherits: a kernel that
// goes on from memory maps that one anew, but not the program that it began
// with, and so the agent must not be that.
func entry() (*os.File, error) {
	fd, err := unix.MemfdCreate("entry", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the first program: %w", err)
	}
	f := os.NewFile(uintptr(fd), "entry")
	defer f.Close()
	if _, err := f.Write(entryProgram("/proc/self/fd/" + strconv.Itoa(control.ProgramFD))); err != nil {
		return nil, fmt.Errorf("write the first program: %w", err)
	}
	// Anew: gVisor executes nothing that it could write to.
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// Sizes and numbers of ELF: see elf(5).
const (
	elfHeader     = 64
	elfSegment    = 56
	elfExecutable = 2
	elfLoad       = 1
	elfReadable   = 4
	elfExecute    = 1
	entryAddress  = 0x400000
)

// entryProgram is a static executable of one segment, the whole file, which
// executes path with the arguments and the environment that it got.
func entryProgram(path string) []byte {
	code := append(append([]byte(nil), entryCode...), path...)
	code = append(code, 0)
	size := uint64(elfHeader + elfSegment + len(code))
	le := binary.LittleEndian
	b := append(make([]byte, 0, size), 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint16(b, elfExecutable)
	b = le.AppendUint16(b, entryMachine)
	b = le.AppendUint32(b, 1)                                       // version
	b = le.AppendUint64(b, entryAddress+elfHeader+elfSegment)       // where it begins
	b = le.AppendUint64(b, elfHeader)                               // where the segments are listed
	b = le.AppendUint64(b, 0)                                       // no sections
	b = le.AppendUint32(b, 0)                                       // flags
	for _, n := range []uint16{elfHeader, elfSegment, 1, 0, 0, 0} { // sizes and counts
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(b, elfLoad)
	b = le.AppendUint32(b, elfReadable|elfExecute)
	for _, n := range []uint64{0, entryAddress, entryAddress, size, size, 0x1000} { // offset, addresses, sizes, alignment
		b = le.AppendUint64(b, n)
	}
	return append(b, code...)
}
