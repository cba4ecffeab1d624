package process

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// seats spread instances over the processors of this machine: each gets those that the
// fewest others have. Instances of an earlier daemon are not known to it, which costs them
// and others some evenness and nothing else: what an instance may take is its quota's to say.
type seats struct {
	mu   sync.Mutex
	has  map[string][]int // by instance
	used map[int]int      // how many have a processor
	all  func() []int
}

func newSeats() *seats {
	return &seats{has: map[string][]int{}, used: map[int]int{}, all: ownProcessors}
}

// ownProcessors lists those that this process may run on, in no order, so that two daemons
// don't begin with the same.
func ownProcessors() (list []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil // the instance's agent takes what it may
	}
	for n := 0; len(list) < set.Count(); n++ {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// take returns the processors of an instance, as many as cpus is rounded up: those that it
// has already, as far as they go. It returns none where it may have all.
func (s *seats) take(id string, cpus float64) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.has[id]
	s.releaseLocked(id)
	all, n := s.all(), int(math.Ceil(cpus))
	if cpus <= 0 || n >= len(all) {
		return nil
	}
	slices.SortStableFunc(all, func(a, b int) int {
		mine := func(cpu int) int {
			if slices.Contains(before, cpu) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(mine(a), mine(b)), cmp.Compare(s.used[a], s.used[b]))
	})
	list := all[:n:n]
	slices.Sort(list)
	for _, cpu := range list {
		s.used[cpu]++
	}
	s.has[id] = list
	return slices.Clone(list)
}

// release forgets an instance that was removed.
func (s *seats) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(id)
}

func (s *seats) releaseLocked(id string) {
	for _, cpu := range s.has[id] {
		s.used[cpu]--
	}
	delete(s.has, id)
}
