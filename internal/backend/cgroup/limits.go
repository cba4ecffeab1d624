package cgroup

import (
	"math"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Limits bound a group. The zero value of a field means no limit.
type Limits struct {
	Memory int64   // bytes, kernel memory included; swap is closed whenever this is set
	CPUs   float64 // processors' worth of time in each tenth of a second
	PIDs   int64   // host threads: a backstop far above what the wall itself needs
	// OOMTogether ends all of the group's processes when one is killed for
	// memory. Version 1 can't, and there it changes nothing.
	OOMTogether bool
}

// The bounds of what Create accepts.
const (
	minMemory = 1 << 20 // bytes
	minCPUs   = 0.01    // the kernel's shortest quota
	maxCPUs   = 65536
	maxPIDs   = 4 << 20 // the kernel's highest process number
)

// period is the scheduler's accounting period, the kernel's own default.
const period = 100_000 // microseconds

// Validate says what of l can never be set, as an Invalid error.
func (l Limits) Validate() error {
	switch {
	case l.Memory < 0 || l.Memory > 0 && l.Memory < minMemory:
		return sandbox.Errorf(sandbox.Invalid, "memory limit of %d bytes is below the least, %d", l.Memory, int64(minMemory))
	case math.IsNaN(l.CPUs) || l.CPUs < 0 || l.CPUs > 0 && l.CPUs < minCPUs || l.CPUs > maxCPUs:
		return sandbox.Errorf(sandbox.Invalid, "limit of %g cpus is not between %g and %d", l.CPUs, minCPUs, maxCPUs)
	case l.PIDs < 0 || l.PIDs > maxPIDs:
		return sandbox.Errorf(sandbox.Invalid, "limit of %d processes is not between 1 and %d", l.PIDs, maxPIDs)
	}
	return nil
}

// setting is one file to write.
type setting struct {
	file     string
	value    func(Limits) string // "" leaves the file alone
	optional bool                // not every kernel has it
}

// promise is one limit: who asks for it and what keeps it.
type promise struct {
	name       string // as sandbox.Enforcement has it
	controller string
	wanted     func(Limits) bool
	v1, v2     []setting
	mechanism  [3]string // by version
}

// promises is the whole list of what this package can enforce.
var promises = []promise{
	{
		name: "memory", controller: "memory",
		wanted: func(l Limits) bool { return l.Memory > 0 },
		// The limit with swap can't be below the one without, so it comes second.
		v1: []setting{
			{file: "memory.limit_in_bytes", value: memory},
			{file: "memory.memsw.limit_in_bytes", value: memory, optional: true},
			{file: "memory.swappiness", value: zero, optional: true},
		},
		v2: []setting{
			{file: "memory.max", value: memory},
			{file: "memory.swap.max", value: zero, optional: true},
			{file: "memory.oom.group", value: oomTogether, optional: true},
		},
		mechanism: [3]string{1: "cgroup v1 memory.limit_in_bytes", 2: "cgroup v2 memory.max"},
	},
	{
		name: "cpus", controller: "cpu",
		wanted: func(l Limits) bool { return l.CPUs > 0 },
		v1: []setting{
			{file: "cpu.cfs_period_us", value: func(Limits) string { return strconv.Itoa(period) }},
			{file: "cpu.cfs_quota_us", value: quota},
		},
		v2:        []setting{{file: "cpu.max", value: func(l Limits) string { return quota(l) + " " + strconv.Itoa(period) }}},
		mechanism: [3]string{1: "cgroup v1 cpu.cfs_quota_us", 2: "cgroup v2 cpu.max"},
	},
	{
		name: "pids", controller: "pids",
		wanted:    func(l Limits) bool { return l.PIDs > 0 },
		v1:        []setting{{file: "pids.max", value: pids}},
		v2:        []setting{{file: "pids.max", value: pids}},
		mechanism: [3]string{1: "cgroup v1 pids.max", 2: "cgroup v2 pids.max"},
	},
}

func memory(l Limits) string { return strconv.FormatInt(l.Memory, 10) }
func zero(Limits) string     { return "0" }
func quota(l Limits) string  { return strconv.FormatInt(int64(math.Round(l.CPUs*period)), 10) }
func pids(l Limits) string   { return strconv.FormatInt(l.PIDs, 10) }

func oomTogether(l Limits) string {
	if l.OOMTogether {
		return "1"
	}
	return ""
}

// settings returns the files of the promise in a version of the interface.
func (p *promise) settings(version int) []setting {
	if version == 2 {
		return p.v2
	}
	return p.v1
}
