// Package holders finds the processes that have files of a directory open for writing, or mapped so that
// they can write to them.
//
// It goes by what /proc says. A descriptor that is on its way from one process to another through a socket is nobody's
// there: it is not found. What a process calls itself, and its files, is its own word.
package holders

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is a process, and one file that it can write to.
type Holder struct {
	PID     int    // as the /proc has it in which it was found
	Program string // its name; "": it has just ended
	Path    string // of the file; as the process sees it
	Mapped  bool   // it has the file in its memory, and may have closed it
}

// Writers lists those of a /proc, each with the first file that was found of it, by PID.
func Writers(proc, dir string) ([]Holder, error) {
	names, err := numbers(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var list []Holder
	for _, pid := range names {
		at := filepath.Join(proc, strconv.Itoa(pid))
		h, ok := writer(at, dir)
		if !ok {
			continue
		}
		h.PID = pid
		comm, _ := os.ReadFile(at + "/comm")
		h.Program = strings.ToValidUTF8(strings.TrimSpace(string(comm)), "\uFFFD")
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

// writer looks at one process: at each of its threads, which may have descriptors of their own.
func writer(at, dir string) (Holder, bool) {
	threads, err := numbers(at + "/task")
	if err != nil {
		return Holder{}, false // it has ended
	}
	for _, tid := range threads {
		if path, ok := open(filepath.Join(at, "task", strconv.Itoa(tid)), dir); ok {
			return Holder{Path: path}, true
		}
	}
	maps, err := os.ReadFile(at + "/maps")
	if err != nil {
		return Holder{}, false
	}
	if path, ok := mapped(maps, dir); ok {
		return Holder{Path: path, Mapped: true}, true
	}
	return Holder{}, false
}

// open returns a file below dir that a thread has open for writing.
func open(task, dir string) (path string, ok bool) {
	fds, err := numbers(task + "/fd")
	if err != nil {
		return "", false
	}
	for _, fd := range fds {
		name := strconv.Itoa(fd)
		path, err := os.Readlink(filepath.Join(task, "fd", name))
		if err != nil || !below(path, dir) {
			continue
		}
		info, err := os.ReadFile(filepath.Join(task, "fdinfo", name))
		if err == nil && writable(info) {
			return path, true
		}
	}
	return "", false
}

// writable reads the flags of a descriptor: "flags:\t0100002", in octal.
func writable(info []byte) bool {
	for line := range bytes.Lines(info) {
		if text, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			flags, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0
		}
	}
	return false
}

// mapped finds a file below dir in a process's map of its memory that it shares with others and may write to.
// A line is "7f00-7f01 rw-s 00000000 08:01 12 /workspace/db".
func mapped(maps []byte, dir string) (path string, ok bool) {
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || len(fields[1]) != 4 || fields[1][3] != 's' {
			continue
		}
		if path := strings.TrimLeft(fields[5], " "); below(path, dir) {
			return path, true
		}
	}
	return "", false
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// numbers lists the entries of a directory that are numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}
