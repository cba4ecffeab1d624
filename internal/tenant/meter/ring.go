package meter

import (
	"math"
	"time"
)

// point is a Sample, small. Sizes are in KiB.
type point struct {
	time            int64
	cpus, cpu       float32
	memory, total   uint32
	cache           uint32
	disk, diskTotal uint32
}

// kib rounds up: what is used is not nothing.
func kib(n int64) uint32 {
	return uint32(min((max(n, 0)+1023)>>10, math.MaxUint32))
}

func (p point) sample() Sample {
	size := func(n uint32) int64 { return int64(n) << 10 }
	return Sample{
		Time: time.Unix(p.time, 0).UTC(), CPUs: float64(p.cpus), CPU: math.Round(100*float64(p.cpu)) / 100,
		Memory: size(p.memory), MemoryTotal: size(p.total), Cache: size(p.cache), Disk: size(p.disk), DiskTotal: size(p.diskTotal),
	}
}

// ring holds the newest PerSandbox points. It grows with what it has.
type ring struct {
	all   []point
	first int // of those in all
	n     int
}

func (r *ring) add(p point) {
	switch {
	case r.n < PerSandbox:
		r.all = append(r.all, p)
		r.n++
	default:
		r.all[r.first] = p
		r.first = (r.first + 1) % r.n
	}
}

// at returns the i-th oldest point.
func (r *ring) at(i int) point { return r.all[(r.first+i)%len(r.all)] }
