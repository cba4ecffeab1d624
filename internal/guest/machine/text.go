package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cpuinfo leaves of a /proc/cpuinfo the processors that are in list.
func cpuinfo(text []byte, list []int) []byte {
	var out [][]byte
	for block := range bytes.SplitSeq(bytes.TrimRight(text, "\n"), []byte("\n\n")) {
		name, value, _ := bytes.Cut(block, []byte(":"))
		if strings.TrimSpace(string(name)) == "processor" {
			value, _, _ = bytes.Cut(value, []byte("\n"))
			n, err := strconv.Atoi(strings.TrimSpace(string(value)))
			if err == nil && !slices.Contains(list, n) {
				continue
			}
		}
		out = append(out, block)
	}
	return append(bytes.Join(out, []byte("\n\n")), "\n\n"...)
}

// stat leaves of a /proc/stat the processors that are in list, and their sum in the place of
// that of all.
func stat(text []byte, list []int) []byte {
	var each, rest bytes.Buffer
	var sum []uint64
	for line := range bytes.Lines(text) {
		name, fields, _ := bytes.Cut(line, []byte(" "))
		number, ok := bytes.CutPrefix(name, []byte("cpu"))
		if !ok {
			rest.Write(line)
			continue
		}
		n, err := strconv.Atoi(string(number))
		if err != nil || !slices.Contains(list, n) {
			continue
		}
		each.Write(line)
		for i, f := range bytes.Fields(fields) {
			v, _ := strconv.ParseUint(string(f), 10, 64)
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += v
		}
	}
	out := []byte("cpu ")
	for _, v := range sum {
		out = strconv.AppendUint(append(out, ' '), v, 10)
	}
	out = append(out, '\n')
	return slices.Concat(out, each.Bytes(), rest.Bytes())
}

// usage is what commands use of their memory, in bytes.
type usage struct {
	all    int64 // cache included
	cache  int64 // contents of files, that the kernel can take back
	shared int64 // memory file systems and shared memory
}

// meminfo is a /proc/meminfo of a machine that has limit bytes of memory, on one whose
// own is host. It has no more than host, of any kind.
func meminfo(host []byte, limit int64, u usage) []byte {
	of := func(key string) int64 { return keyed(host, key+":") << 10 }
	total := of("MemTotal")
	if limit > 0 && (total == 0 || limit < total) {
		total = limit
	}
	used := min(max(u.all, 0), total)
	cache := min(max(u.cache, 0), used)
	free := total - used
	available := free + cache
	if most := of("MemAvailable"); most > 0 {
		available = min(available, most)
	}
	free = min(free, available)
	shared := min(max(u.shared, 0), used)
	var out []byte
	for _, l := range []struct {
		key   string
		bytes int64
	}{
		{"MemTotal", total},
		{"MemFree", free},
		{"MemAvailable", available},
		{"Buffers", 0},
		{"Cached", min(cache+shared, used)},
		{"SwapCached", 0},
		{"SwapTotal", 0},
		{"SwapFree", 0},
		{"Shmem", shared},
		{"Slab", 0},
		{"SReclaimable", 0},
		{"SUnreclaim", 0},
	} {
		out = fmt.Appendf(out, "%-15s %8d kB\n", l.key+":", l.bytes>>10)
	}
	return out
}

// keyed returns the number of a line "key number"; 0 where there is none.
func keyed(text []byte, key string) int64 {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == key {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n
		}
	}
	return 0
}
