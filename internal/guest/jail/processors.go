package jail

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// runOn has the calling thread, and what it forks, run on the processors of a list; an
// empty one changes nothing.
func runOn(list []int) error {
	if len(list) == 0 {
		return nil
	}
	set := setOf(list)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("run on processors %v: %w", list, err)
	}
	return nil
}

func setOf(list []int) (set unix.CPUSet) {
	for _, n := range list {
		set.Set(n)
	}
	return set
}

// SetProcessors has commands run on the processors of a list, which is not empty: those that
// start from now on, and of those that run every thread that has not chosen others since.
func (j *Jail) SetProcessors(list []int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := setOf(j.processors)
	j.processors = slices.Clone(list)
	for _, w := range []*worker{j.cell.user, j.cell.root} {
		if w == nil {
			continue
		}
		var failed error
		if err := w.do(func() { failed = runOn(list) }); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	if before.Count() == 0 {
		return nil
	}
	return j.move(before, setOf(list))
}

// move gives each thread of the commands' that runs on one set of processors another. One
// that is forked meanwhile may be missed, so that it looks again until there is none.
func (j *Jail) move(from, to unix.CPUSet) error {
	for range moves {
		moved := 0
		err := eachThread(func(tid int) {
			var now unix.CPUSet
			if unix.SchedGetaffinity(tid, &now) == nil && now == from && unix.SchedSetaffinity(tid, &to) == nil {
				moved++
			}
		})
		if err != nil || moved == 0 {
			return err
		}
	}
	return nil
}

// moves is how often move looks: commands that fork without end can't keep it.
const moves = 16

// eachThread calls f for each thread that is not of this process.
func eachThread(f func(tid int)) error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		threads, err := os.ReadDir("/proc/" + p.Name() + "/task")
		if err != nil {
			continue // it has ended
		}
		for _, t := range threads {
			if tid, err := strconv.Atoi(t.Name()); err == nil {
				f(tid)
			}
		}
	}
	return nil
}
