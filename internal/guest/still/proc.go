package still

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// proc is a process as /proc has it.
type proc struct {
	pid, parent int
	start       uint64 // when it was started, by which it is known again
	state       byte
}

// look reads one process.
func look(pid int) (proc, error) {
	return read("/proc/"+strconv.Itoa(pid)+"/stat", pid)
}

func read(path string, pid int) (proc, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return proc{}, err
	}
	p, err := parseStat(raw)
	p.pid = pid
	return p, err
}

var errStat = errors.New("a stat file of another form")

// parseStat reads "PID (NAME) STATE PARENT … START …": the name may hold
// anything, brackets and spaces too.
func parseStat(raw []byte) (p proc, err error) {
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return p, errStat
	}
	fields := bytes.Fields(raw[i+1:])
	const state, parent, start = 0, 1, 19
	if len(fields) <= start || len(fields[state]) != 1 {
		return p, errStat
	}
	p.state = fields[state][0]
	if p.state|0x20 < 'a' || p.state|0x20 > 'z' {
		return p, errStat
	}
	var err1, err2 error
	p.parent, err1 = strconv.Atoi(string(fields[parent]))
	p.start, err2 = strconv.ParseUint(string(fields[start]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return p, fmt.Errorf("%w: %w", errStat, err)
	}
	return p, nil
}

// descendants lists what descends from a process, in the order of their
// starts.
func descendants(root int) ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]proc)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := look(pid); err == nil { // or it has just ended
			all[pid] = p
		}
	}
	var out []proc
	for _, p := range all {
		if p.pid != root && descends(all, p, root) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b proc) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	return out, nil
}

func descends(all map[int]proc, p proc, root int) bool {
	for range len(all) {
		if p.parent == root {
			return true
		}
		above, ok := all[p.parent]
		if !ok {
			return false
		}
		p = above
	}
	return false
}

// halted reports whether a state is that of one that does nothing: stopped,
// traced and stopped, or dead.
func halted(state byte) bool { return bytes.IndexByte([]byte("TtZXx"), state) >= 0 }

// runs reports whether any thread of p may do anything. The first thread's
// state is not that of the others.
func (p proc) runs() bool {
	dir := "/proc/" + strconv.Itoa(p.pid) + "/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		t, err := read(dir+"/"+e.Name()+"/stat", p.pid)
		if err == nil && !halted(t.state) {
			return true
		}
	}
	return false
}
