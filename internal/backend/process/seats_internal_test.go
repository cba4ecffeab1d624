package process

import (
	"slices"
	"strconv"
	"testing"
)

// Instances are spread evenly, keep what they have, and give it back.
func TestSeats(t *testing.T) {
	s := newSeats()
	s.all = func() []int { return []int{3, 1, 0, 2} }
	for i := range 8 {
		if got := s.take(strconv.Itoa(i), 1.5); len(got) != 2 || !slices.IsSorted(got) {
			t.Fatalf("instance %d gets %v", i, got)
		}
	}
	for cpu, n := range s.used {
		if n != 4 {
			t.Errorf("processor %d is that of %d of 8 instances with two each", cpu, n)
		}
	}
	before := s.take("0", 2)
	if more := s.take("0", 3); len(more) != 3 || !slices.Contains(more, before[0]) || !slices.Contains(more, before[1]) {
		t.Errorf("%v became %v", before, more)
	}
	if all := s.take("0", 4); all != nil {
		t.Errorf("one that may have all gets %v", all)
	}
	for i := range 8 {
		s.release(strconv.Itoa(i))
		s.release(strconv.Itoa(i))
	}
	for cpu, n := range s.used {
		if n != 0 {
			t.Errorf("processor %d is that of %d instances when all are gone", cpu, n)
		}
	}
}
