// Package holders finds the processes that are in the way of a directory which is to become read-only: those that have
// files of it open for writing, or that could write by what they have open.
//
// It goes by what /proc says, and by what the kernel answers where it is asked for such a file or directory. A
// descriptor that is on its way from one process to another through a socket is nobody's there: Linux counts those of a
// socket; gVisor's kernel is asked whether anything waits in one. What a process calls itself, and its files, is its own word.
package holders

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// Holder is a process, and one thing by which it can write.
type Holder struct {
	PID     int     // as the /proc has it in which it was found
	Program string  // its name; "": it has just ended
	Path    string  // of the file or directory; as the process sees it
	How     api.How // what it has of it
}

// Search looks at a process, whose directory in a /proc is at.
type Search func(at string) (Holder, bool)

// Find lists the processes of a /proc that a search finds something of, by PID.
func Find(proc string, search Search) ([]Holder, error) {
	names, err := numbers(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var list []Holder
	for _, pid := range names {
		at := filepath.Join(proc, strconv.Itoa(pid))
		h, ok := search(at)
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

// Writing finds what has files of a directory open for writing, or in its memory so that others see what it writes there.
func Writing(dir string) Search {
	return func(at string) (Holder, bool) {
		return ofProcess(at, []string{dir}, func(task string) (Holder, bool) {
			return ofDescriptors(task, func(fd, path string) (api.How, bool) {
				if !below(path, dir) {
					return "", false
				}
				info, err := os.ReadFile(filepath.Join(task, "fdinfo", fd))
				return api.HowWrites, err == nil && writable(info)
			})
		})
	}
}

// Reaching finds what could write to files of directories by what it has open there, for reading too, works in, or executes:
// what is mounted over the directories does not bind it. Nothing of it may run meanwhile.
func Reaching(dirs []string) Search { return having(dirs, dirs, accessible, opens) }

// Leading finds what works in directories or has one of them, or one below, open: from there what was mounted in them afterwards is
// not seen.
func Leading(dirs []string) Search {
	never := func(string) bool { return false }
	search := having(dirs, nil, func(link string) bool {
		var st unix.Stat_t
		return unix.Stat(link, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && accessible(link)
	}, never)
	return func(at string) (Holder, bool) {
		if len(dirs) == 0 {
			return Holder{}, false
		}
		return search(at)
	}
}

// Either finds what one of searches does.
func Either(searches ...Search) Search {
	return func(at string) (Holder, bool) {
		for _, search := range searches {
			if h, ok := search(at); ok {
				return h, true
			}
		}
		return Holder{}, false
	}
}

// Within finds what has anything of a directory open, works in it or executes something of it.
func Within(dir string) Search {
	always := func(string) bool { return true }
	return having([]string{dir}, []string{dir}, always, always)
}

// having finds what has something of directories, as far as has says so of what a link of a /proc leads to, or runs of
// the program; or has a file of what is in maps in its memory.
func having(dirs, maps []string, has, runs func(link string) bool) Search {
	in := func(path string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return below(path, dir) })
	}
	return func(at string) (Holder, bool) {
		if passedTo(at) {
			return Holder{How: api.HowPasses}, true
		}
		return ofProcess(at, maps, func(task string) (Holder, bool) {
			for link, how := range map[string]api.How{"cwd": api.HowWorksIn, "root": api.HowRootedIn} {
				name := filepath.Join(task, link)
				if path, err := os.Readlink(name); err == nil && in(path) && has(name) {
					return Holder{Path: path, How: how}, true
				}
			}
			exe := filepath.Join(task, "exe")
			if path, err := os.Readlink(exe); err == nil && in(path) && runs(exe) {
				return Holder{Path: path, How: api.HowReaches}, true
			}
			return ofDescriptors(task, func(fd, path string) (api.How, bool) {
				if strings.HasPrefix(path, "socket:") {
					info, err := os.ReadFile(filepath.Join(task, "fdinfo", fd))
					return api.HowPasses, err == nil && passes(info)
				}
				return api.HowReaches, in(path) && has(filepath.Join(task, "fd", fd))
			})
		})
	}
}

// ofProcess looks at each thread of a process, which may have descriptors of its own, and at its memory.
func ofProcess(at string, dirs []string, search Search) (Holder, bool) {
	threads, err := numbers(at + "/task")
	if err != nil {
		return headless(at, dirs)
	}
	for _, tid := range threads {
		if h, ok := search(filepath.Join(at, "task", strconv.Itoa(tid))); ok {
			return h, true
		}
	}
	maps, err := os.ReadFile(at + "/maps")
	for _, tid := range threads { // where the first one has ended it has none, and the others have the same
		if len(maps) == 0 {
			maps, err = os.ReadFile(filepath.Join(at, "task", strconv.Itoa(tid), "maps"))
		}
	}
	if err != nil {
		return Holder{}, false
	}
	for _, dir := range dirs {
		if path, ok := mapped(maps, dir); ok {
			return Holder{Path: path, How: api.HowMaps}, true
		}
	}
	return Holder{}, false
}

// headless finds a process whose first thread has ended while others go on: gVisor's kernel shows nothing then of what they have, so that
// they may have anything. One that has ended as a whole has nothing.
func headless(at string, dirs []string) (Holder, bool) {
	status, err := os.ReadFile(at + "/status")
	if err != nil || field(status, "Threads:", 10) < 2 {
		return Holder{}, false
	}
	h := Holder{How: api.HowReaches, Path: "/"}
	if len(dirs) > 0 {
		h.Path = dirs[0]
	}
	return h, true
}

// ofDescriptors returns the first of a thread's descriptors of which is says so.
func ofDescriptors(task string, is func(fd, path string) (api.How, bool)) (Holder, bool) {
	fds, err := numbers(task + "/fd")
	if err != nil {
		return Holder{}, false
	}
	for _, fd := range fds {
		name := strconv.Itoa(fd)
		path, err := os.Readlink(filepath.Join(task, "fd", name))
		if err != nil {
			continue
		}
		if how, ok := is(name, path); ok {
			return Holder{Path: path, How: how}, true
		}
	}
	return Holder{}, false
}

// accessible reports whether what a link of a /proc leads to can be written to by that link: a file, or by making another
// in a directory. What was deleted does not count.
func accessible(link string) bool {
	var st unix.Stat_t
	if err := unix.Stat(link, &st); err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	if kind := st.Mode & unix.S_IFMT; st.Nlink == 0 || kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return false
	}
	err := unix.Access(link, unix.W_OK)
	return !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.ENOENT)
}

// opens reports whether a program that runs can be opened for writing.
func opens(link string) bool {
	fd, err := unix.Open(link, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// passedTo asks gVisor's kernel whether something waits in a socket of a process; Linux says that of each socket.
func passedTo(at string) bool {
	pid, err := strconv.Atoi(filepath.Base(at))
	if err != nil {
		return false
	}
	n, err := unix.PrctlRetInt(control.PrctlHold, uintptr(control.HoldPassed), uintptr(pid), 0, 0)
	return err == nil && n > 0
}

// passes reads how many descriptors wait in a socket: "scm_fds: 1".
func passes(info []byte) bool { return field(info, "scm_fds:", 10) > 0 }

// writable reads the flags of a descriptor: "flags:\t0100002", in octal.
func writable(info []byte) bool {
	flags := field(info, "flags:", 8)
	return flags >= 0 && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0
}

// field reads a number of a descriptor's file in /proc; -1: there is none.
func field(info []byte, name string, base int) int64 {
	for line := range bytes.Lines(info) {
		if text, ok := bytes.CutPrefix(line, []byte(name)); ok {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), base, 64); err == nil {
				return n
			}
			break
		}
	}
	return -1
}

// mapped finds a file below dir in a process's map of its memory that it shares with others.
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
