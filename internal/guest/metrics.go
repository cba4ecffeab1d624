package guest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// meter measures, and remembers the processors' time between calls.
type meter struct {
	mu          sync.Mutex
	total, idle uint64
}

func newMeter() *meter {
	m := &meter{}
	if text, err := readProc("/proc/stat"); err == nil {
		m.total, m.idle, _ = parseCPU(text)
	}
	return m
}

func (a *agent) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	m, err := a.metrics.read()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, m)
}

func (m *meter) read() (api.Metrics, error) {
	r := api.Metrics{TS: time.Now().Unix(), CPUCount: runtime.NumCPU()}
	text, err := readProc("/proc/meminfo")
	if err != nil {
		return r, err
	}
	mem := parseMeminfo(text)
	r.MemTotal = mem["MemTotal"]
	r.MemCache = mem["Cached"]
	r.MemUsed = r.MemTotal - min(r.MemTotal, mem["MemAvailable"])
	r.MemTotalMiB, r.MemUsedMiB = r.MemTotal>>20, r.MemUsed>>20

	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return r, fmt.Errorf("measure disk: %w", err)
	}
	size := uint64(st.Bsize)
	r.DiskTotal = st.Blocks * size
	r.DiskUsed = (st.Blocks - min(st.Blocks, st.Bavail)) * size

	if text, err = readProc("/proc/stat"); err != nil {
		return r, err
	}
	r.CPUUsedPct = m.used(text)
	return r, nil
}

// used is the share of the processors' time since the last call, in percent.
func (m *meter) used(stat []byte) float64 {
	total, idle, ok := parseCPU(stat)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	passed, rested := total-min(total, m.total), idle-min(idle, m.idle)
	m.total, m.idle = total, idle
	if passed == 0 {
		return 0
	}
	return math.Round(10000*float64(passed-min(passed, rested))/float64(passed)) / 100
}

// readProc reads a file of the kernel's, which is never long.
func readProc(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	return text, nil
}

// parseCPU sums the first line of /proc/stat. Guest time is part of user time
// there, so it is left out.
func parseCPU(text []byte) (total, idle uint64, ok bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		total += n
		if i == 3 || i == 4 { // idle, and waiting for a disk
			idle += n
		}
	}
	return total, idle, true
}

// parseMeminfo returns the numbers of /proc/meminfo in bytes.
func parseMeminfo(text []byte) map[string]uint64 {
	sizes := map[string]uint64{}
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(string(fields[0]), 10, 54)
		if err != nil {
			continue
		}
		if len(fields) > 1 && string(fields[1]) == "kB" {
			n <<= 10
		}
		sizes[string(name)] = n
	}
	return sizes
}
