package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
)

// tick is what /proc counts processor time in. The kernel shows it to
// programs as a hundredth of a second on every machine that it runs on.
const tick = 10 * time.Millisecond

// process is one line of the table of processes.
type process struct {
	pid, parent int
	zombie      bool
	own         time.Duration // processor time of its own, in ticks
	children    time.Duration // of its children that have ended, and theirs
}

// Fields of /proc/PID/stat after the command's name.
const (
	fieldUser          = 11
	fieldSystem        = 12
	fieldChildrenUser  = 13
	fieldChildrenSytem = 14
)

var errTimes = errors.New("malformed process times")

// parseProcess reads a line of /proc/PID/stat.
func parseProcess(line []byte) (process, error) {
	s, err := procid.ParseStat(line)
	if err != nil {
		return process{}, err
	}
	f := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	var ticks [4]time.Duration
	for i, at := range []int{fieldUser, fieldSystem, fieldChildrenUser, fieldChildrenSytem} {
		// The children's are signed, and no process lives for 2^40 ticks.
		n, err := strconv.ParseInt(string(f[at]), 10, 41)
		if err != nil || n < 0 {
			return process{}, errTimes
		}
		ticks[i] = time.Duration(n) * tick
	}
	return process{
		pid: s.PID, parent: s.PPID, zombie: s.State == 'Z',
		own: ticks[0] + ticks[1], children: ticks[2] + ticks[3],
	}, nil
}

// readProcesses returns all that /proc shows. Processes that end meanwhile
// are left out.
func readProcesses() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		p, err := parseProcess(line)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// below returns root, where it is in all, and all that descends from it.
func below(all []process, root int) (tree []process) {
	children := map[int][]process{}
	for _, p := range all {
		if p.pid == root {
			tree = append(tree, p)
		}
		children[p.parent] = append(children[p.parent], p)
	}
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if !seen[p.pid] {
				seen[p.pid] = true
				tree = append(tree, p)
				next = append(next, p.pid)
			}
		}
	}
	return tree
}

// cpuTime returns the processor time of root and all below it, of those that
// have ended and were waited for too. threads says more exactly what a living
// process has used; of both, the larger is nearer to the truth, as ticks are
// rounded down and threads that ended are missing.
func cpuTime(all []process, root int, threads func(pid int) time.Duration) (sum time.Duration) {
	for _, p := range below(all, root) {
		sum += p.children + max(p.own, threads(p.pid))
	}
	return sum
}

// threadTime adds up what the threads of a process have used, which the
// kernel counts in nanoseconds; 0 where it does not say.
func threadTime(pid int) (sum time.Duration) {
	names, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/schedstat"))
	if err != nil {
		return 0
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		first, _, _ := bytes.Cut(b, []byte(" "))
		n, err := strconv.ParseInt(string(first), 10, 63)
		if err != nil {
			return 0
		}
		sum += time.Duration(n)
	}
	return sum
}

// shareOf returns the memory of processes in bytes, what several share
// divided among them, and how many could not be read.
func shareOf(pids []int) (sum uint64, unread int) {
	for _, pid := range pids {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, errNoProcess) {
				unread++
			}
			continue
		}
		sum += kilobytes(b, "Pss")
	}
	return sum, unread
}

// available is what the machine says that programs can still have, in bytes.
func available() (uint64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	if n := kilobytes(b, "MemAvailable"); n > 0 {
		return n, nil
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

// pidsOf are the process numbers of ps that live, without those in but.
func pidsOf(ps []process, but ...int) (pids []int) {
	for _, p := range ps {
		if !p.zombie && !slices.Contains(but, p.pid) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
