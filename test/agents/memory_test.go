package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// find is what a search for several texts saw.
type find struct {
	texts []string
	seen  map[string][]string // text to where
	files map[string]bool     // shared memory that was read, by device and inode
}

func (f *find) look(where string, raw []byte) {
	for _, text := range f.texts {
		if bytes.Contains(raw, []byte(text)) && !slices.Contains(f.seen[text], where) {
			f.seen[text] = append(f.seen[text], where)
		}
	}
}

// overlap is more than the longest text: pieces that are read overlap by it.
const overlap, piece = 512, 4 << 20

// stream looks through what a reader has.
func (f *find) stream(where string, r io.Reader) (n int64, err error) {
	buf, kept := make([]byte, piece+overlap), 0
	for {
		m, err := io.ReadFull(r, buf[kept:])
		n += int64(m)
		f.look(where, buf[:kept+m])
		if err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = nil
			}
			return n, err
		}
		kept = copy(buf, buf[len(buf)-overlap:])
	}
}

// file looks through what there is of a file, which may have holes.
func (f *find) file(where, path string) {
	file, err := os.Open(path)
	if err != nil {
		return // it is gone
	}
	defer file.Close()
	for end := int64(0); ; {
		from, err := unix.Seek(int(file.Fd()), end, unix.SEEK_DATA)
		if err != nil {
			return // there is no more
		}
		if end, err = unix.Seek(int(file.Fd()), from, unix.SEEK_HOLE); err != nil {
			return
		}
		_, _ = f.stream(where, io.NewSectionReader(file, from, end-from)) // what goes away meanwhile is not there
	}
}

// process looks through the memory that a process has. Shared memory is a file's,
// which a guest's memory is under gVisor: read there, nothing is added to it.
func (f *find) process(where string, pid int) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return // it has ended
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return
	}
	defer mem.Close()
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return
	}
	defer pages.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); n < 3 || perms[0] != 'r' {
			continue
		}
		name := strings.Fields(line)
		switch {
		case perms[3] == 's' && len(name) > 5:
			if file := name[3] + " " + name[4]; !f.files[file] {
				f.files[file] = true
				f.file(where, fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, from, to))
			}
		case perms[1] == 'w' || len(name) < 6:
			f.present(where, mem, pages, from, to)
		}
	}
}

// present looks through those pages of a mapping that there are.
func (f *find) present(where string, mem, pages *os.File, from, to int64) {
	const page, most = 4096, 1 << 14
	entries := make([]byte, 8*most)
	for at := from; at < to; at += most * page {
		n, _ := pages.ReadAt(entries[:8*min(most, (to-at)/page)], at/page*8)
		begin := int64(-1)
		for i := 0; i <= n/8; i++ {
			there := i < n/8 && binary.LittleEndian.Uint64(entries[8*i:])>>62 != 0
			switch {
			case there && begin < 0:
				begin = at + int64(i)*page
			case !there && begin >= 0:
				_, _ = f.stream(where, io.NewSectionReader(mem, begin, at+int64(i)*page-begin)) // likewise
				begin = -1
			}
		}
	}
}

// boxProcesses are those in the control groups of the place's boxes.
func (p *place) boxProcesses(wall string) (pids []int) {
	sum := sha256.Sum256([]byte(p.dir + "/state/carboy/boxes/" + wall))
	seen := map[int]bool{}
	for _, glob := range []string{"/sys/fs/cgroup/*/carboy/", "/sys/fs/cgroup/carboy/"} {
		groups, _ := filepath.Glob(glob + hex.EncodeToString(sum[:8]))
		for _, g := range groups {
			_ = filepath.WalkDir(g, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.Name() != "cgroup.procs" {
					return nil
				}
				raw, _ := os.ReadFile(path)
				for _, field := range strings.Fields(string(raw)) {
					if pid, err := strconv.Atoi(field); err == nil && !seen[pid] {
						seen[pid] = true
						pids = append(pids, pid)
					}
				}
				return nil
			})
		}
	}
	return pids
}

// keyIsOutside looks for the key in the memory of all of a sandbox's processes but
// the gate, in the guest's files and in the daemon's state. That the search finds
// what is there is seen by the gate's memory, which has the key, and by the
// guest's and one of its files, which have the placeholder.
func (p *place) keyIsOutside(wall, name, key, placeholder string) {
	p.t.Helper()
	p.ok("exec", name, "--", "sh", "-c", "env >/tmp/environment")
	gates, guests, files := 0, 0, map[string]bool{}
	for _, pid := range p.boxProcesses(wall) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		f := &find{texts: []string{key, placeholder}, seen: map[string][]string{}, files: files}
		f.process("memory", pid)
		switch {
		case bytes.HasPrefix(cmdline, []byte("carboy-gate\x00")):
			if len(f.seen[key]) > 0 {
				gates++
			}
		case len(f.seen[key]) > 0:
			p.t.Errorf("the memory of %.200q holds the key", cmdline)
		case len(f.seen[placeholder]) > 0:
			guests++
		}
	}
	if gates != 1 || guests == 0 {
		p.t.Errorf("the key was seen in the memory of %d gates, the placeholder in that of %d others: this search finds nothing", gates, guests)
	}
	f := &find{texts: []string{key, placeholder}, seen: map[string][]string{}}
	p.guestFiles(f, name)
	if len(f.seen[key]) > 0 || len(f.seen[placeholder]) == 0 {
		p.t.Errorf("the guest's files: the key is in %q, the placeholder in %q", f.seen[key], f.seen[placeholder])
	}
	err := filepath.WalkDir(p.dir+"/state", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			f.file(path, path)
		}
		return nil
	})
	if err != nil || len(f.seen[key]) > 0 {
		p.t.Errorf("the daemon's state: the key is in %q (%v)", f.seen[key], err)
	}
}

// guestFiles looks through the files that a guest may write, as they are packed
// inside: the key is not said there.
func (p *place) guestFiles(f *find, name string) {
	p.t.Helper()
	cmd := p.command(p.t.Context(), "exec", name, "--", "sh", "-c",
		"tar -C / -cf - home tmp run etc workspace var/tmp dev/shm 2>/dev/null")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.net.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	n, err := f.stream("a file", out)
	if err != nil || n < 1<<16 {
		p.t.Errorf("the guest's files are %d bytes (%v, %s)", n, err, said.String())
	}
	_ = cmd.Wait() // a file that goes meanwhile is no failure
}
