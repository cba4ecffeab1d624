package machine

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name            string
		cpus            float64
		wanted, allowed []int
		want            []int
	}{
		{"no limit", 0, nil, []int{0, 1, 2}, []int{0, 1, 2}},
		{"rounded up", 1.1, nil, []int{0, 1, 2}, []int{0, 1}},
		{"less than one", 0.1, nil, []int{4, 5}, []int{4}},
		{"more than there are", 8, []int{1}, []int{0, 1}, []int{0, 1}},
		{"those that are wanted", 2, []int{7, 3}, []int{0, 3, 5, 7}, []int{3, 7}},
		{"one that is wanted may not be had", 2, []int{9, 5}, []int{0, 3, 5, 7}, []int{0, 5}},
		{"one is wanted twice", 2, []int{5, 5}, []int{0, 5, 7}, []int{0, 5}},
	} {
		if got := choose(tt.cpus, tt.wanted, tt.allowed); !slices.Equal(got, tt.want) {
			t.Errorf("%s: choose(%g, %v, %v) = %v, want %v", tt.name, tt.cpus, tt.wanted, tt.allowed, got, tt.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "1,3-4,9": {1, 3, 4, 9}} {
		if got := format(list); got != want {
			t.Errorf("format(%v) = %q, want %q", list, got, want)
		}
	}
}

func TestCPUInfo(t *testing.T) {
	const x86 = "processor\t: 0\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: B\n\nprocessor\t: 10\nmodel name\t: C\n\n"
	if got := string(cpuinfo([]byte(x86), []int{1})); got != "processor\t: 1\nmodel name\t: B\n\n" {
		t.Errorf("one of three: %q", got)
	}
	if got := string(cpuinfo([]byte(x86), []int{0, 1, 10})); got != x86 {
		t.Errorf("all: %q", got)
	}
	const arm = "processor\t: 0\nBogoMIPS\t: 1\n\nprocessor\t: 1\nBogoMIPS\t: 1\n\nHardware\t: X\n"
	if got := string(cpuinfo([]byte(arm), []int{1})); got != "processor\t: 1\nBogoMIPS\t: 1\n\nHardware\t: X\n\n" {
		t.Errorf("with a block about the machine: %q", got)
	}
}

func TestStat(t *testing.T) {
	const host = "cpu  60 6 600\ncpu0 10 1 100\ncpu1 20 2 200\ncpu10 30 3 300\nintr 5 1\nbtime 7\n"
	for _, tt := range []struct {
		list []int
		want string
	}{
		{[]int{1}, "cpu  20 2 200\ncpu1 20 2 200\nintr 5 1\nbtime 7\n"},
		{[]int{0, 10}, "cpu  40 4 400\ncpu0 10 1 100\ncpu10 30 3 300\nintr 5 1\nbtime 7\n"},
		{[]int{0, 1, 10}, host},
	} {
		if got := string(stat([]byte(host), tt.list)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.list, got, tt.want)
		}
	}
}

func TestMeminfo(t *testing.T) {
	const mib = 1 << 20
	host := []byte("MemTotal:  8388608 kB\nMemFree: 1024 kB\nMemAvailable:  4194304 kB\nSwapTotal: 99 kB\n")
	for _, tt := range []struct {
		name                   string
		host                   []byte
		limit                  int64
		use                    usage
		total, free, available string
	}{
		{"nothing used", host, 512 * mib, usage{}, "524288", "524288", "524288"},
		{"some of it cache", host, 512 * mib, usage{all: 300 * mib, cache: 100 * mib}, "524288", "217088", "319488"},
		{"more than the limit", host, 512 * mib, usage{all: 600 * mib}, "524288", "0", "0"},
		{"no limit", host, 0, usage{}, "8388608", "4194304", "4194304"},
		{"a limit above what there is", host, 16384 * mib, usage{}, "8388608", "4194304", "4194304"},
		{"a host that is short itself", []byte("MemTotal: 8388608 kB\nMemAvailable: 1000 kB\n"), 512 * mib, usage{}, "524288", "1000", "1000"},
		{"a host that says nothing", nil, 512 * mib, usage{}, "524288", "524288", "524288"},
	} {
		text := string(meminfo(tt.host, tt.limit, tt.use))
		for key, want := range map[string]string{"MemTotal": tt.total, "MemFree": tt.free, "MemAvailable": tt.available, "SwapTotal": "0"} {
			if got := field(text, key); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.name, key, got, want)
			}
		}
	}
}

func field(text, key string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.Fields(rest)[0]
		}
	}
	return ""
}
