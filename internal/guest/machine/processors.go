package machine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// allowed lists the processors that the calling thread may run on.
func allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("ask which processors there are: %w", err)
	}
	var list []int
	for n := 0; len(list) < set.Count(); n++ {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// choose returns as many of the allowed processors as cpus is rounded up: those of wanted
// first. No limit is all of them.
func choose(cpus float64, wanted, allowed []int) []int {
	n := int(math.Ceil(cpus))
	if cpus <= 0 || n >= len(allowed) {
		return slices.Clone(allowed)
	}
	var list []int
	for _, from := range [][]int{wanted, allowed} {
		for _, cpu := range from {
			if len(list) < n && slices.Contains(allowed, cpu) && !slices.Contains(list, cpu) {
				list = append(list, cpu)
			}
		}
	}
	slices.Sort(list)
	return list
}

// format writes a list of processors as the kernel does: "0-2,5".
func format(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && list[last+1] == list[last]+1 {
			last++
		}
		part := strconv.Itoa(list[i])
		if last > i {
			part += "-" + strconv.Itoa(list[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ",")
}
