package hostfiles

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Held is how many open files a process holds: by the tables of descriptors
// that its threads have, and by its memory. What processes share is counted
// for each of them. A process that has ended holds none.
func Held(pid int) uint64 {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	tids := tasks(dir)
	var n uint64
	for _, tid := range tables(tids) {
		n += descriptors(filepath.Join(dir, "task", strconv.Itoa(tid), "fd"))
	}
	// All threads have one memory, but a leader that has ended has none to show.
	for i := len(tids) - 1; i >= 0; i-- {
		f, err := os.Open(filepath.Join(dir, "task", strconv.Itoa(tids[i]), "maps"))
		if err != nil {
			continue
		}
		maps := mapped(f)
		_ = f.Close()
		if maps > 0 {
			return n + maps
		}
	}
	return n
}

// tasks lists the threads of a process.
func tasks(dir string) []int {
	entries, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return nil
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// tables are threads of which no two share their descriptors. Where the kernel
// can't compare, all do.
func tables(tids []int) (apart []int) {
	for _, tid := range tids {
		shared := false
		for _, other := range apart {
			const files = 2 // KCMP_FILES
			order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(other), uintptr(tid), files, 0, 0, 0)
			if shared = order == 0 || errno != 0; shared {
				break
			}
		}
		if !shared {
			apart = append(apart, tid)
		}
	}
	return apart
}

// descriptors counts what is in a directory of descriptors, whose size newer
// kernels let it be.
func descriptors(dir string) uint64 {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		return uint64(st.Size())
	}
	var n uint64
	for {
		names, err := f.Readdirnames(1024)
		n += uint64(len(names))
		if err != nil {
			return n
		}
	}
}

// run is how many parts of one file, one behind the other, are taken for one
// opening of it: programs and libraries have up to six.
const run = 8

// mapped estimates how many open files a list of mappings keeps.
func mapped(r io.Reader) (n uint64) {
	var file string // of the last line
	var end uint64  // its offset
	parts := 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// address perms offset dev inode path
		f := strings.Fields(lines.Text())
		if len(f) < 5 || f[4] == "0" {
			continue
		}
		offset, err := strconv.ParseUint(f[2], 16, 64)
		if err != nil {
			continue
		}
		id := f[3] + " " + f[4]
		if parts++; id != file || offset <= end && parts > 1 || parts > run {
			n, parts = n+1, 1
		}
		file, end = id, offset
	}
	return n
}
