package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTimes(t *testing.T) {
	tests := []struct {
		name, out string
		want      map[string]float64
		bad       string
	}{
		{"two", "took a 1500000\nother\ntook b 0\n", map[string]float64{"a": 1.5, "b": 0}, ""},
		{"no-newline", "took a 1000000", map[string]float64{"a": 1}, ""},
		{"none", "hello\n", nil, "says no times"},
		{"negative", "took a -5\n", nil, "not a time"},
		{"too-long", "took a 1000000000000001\n", nil, "not a time"},
		{"not-a-number", "took a %N\n", nil, "not a time"},
		{"nameless", "took  5\n", nil, "not a time"},
		{"too-many", strings.Repeat("took x 1\n", 1) + many(maxSteps), nil, "too many"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseTimes(tt.out)
			if (err != nil) != (tt.bad != "") || err != nil && !strings.Contains(err.Error(), tt.bad) {
				t.Fatalf("error %v, want %q", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "took s%d 1\n", i)
	}
	return b.String()
}

func FuzzParseTimes(f *testing.F) {
	f.Add("took a 1500000\ntook b 2\n")
	f.Add("took a")
	f.Fuzz(func(t *testing.T, out string) {
		took, err := parseTimes(out)
		if (err == nil) != (len(took) > 0) || len(took) > maxSteps {
			t.Errorf("%v, %v", took, err)
		}
		for name, x := range took {
			if name == "" || x < 0 {
				t.Errorf("%q took %v", name, x)
			}
		}
	})
}

// line is a line of /proc/PID/stat with the times u, s, cu and cs.
func line(pid int, comm string, state byte, parent int, u, s, cu, cs string) string {
	return fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194560 1 2 3 4 %s %s %s %s 20 0 1 0 500 1 1", pid, comm, state, parent, u, s, cu, cs)
}

func TestParseProcess(t *testing.T) {
	tests := []struct {
		name, line string
		want       process
		bad        bool
	}{
		{"plain", line(7, "sh", 'S', 1, "3", "4", "5", "6"), process{7, 1, false, 70 * time.Millisecond, 110 * time.Millisecond}, false},
		{"zombie", line(7, "sh", 'Z', 1, "0", "0", "0", "0"), process{7, 1, true, 0, 0}, false},
		{"imitation", line(7, "x) S 9 9 9", 'R', 2, "1", "0", "0", "0"), process{7, 2, false, 10 * time.Millisecond, 0}, false},
		{"negative", line(7, "sh", 'S', 1, "3", "4", "-5", "6"), process{}, true},
		{"huge", line(7, "sh", 'S', 1, "3", "4", "5", "99999999999999"), process{}, true},
		{"short", "7 (sh) S 1", process{}, true},
		{"empty", "", process{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseProcess([]byte(tt.line))
			if (err != nil) != tt.bad || got != tt.want {
				t.Errorf("parseProcess = %+v, %v", got, err)
			}
		})
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte(line(7, "sh", 'S', 1, "3", "4", "5", "6")))
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProcess(b)
		if err != nil {
			return
		}
		if p.own < 0 || p.children < 0 || p.pid <= 0 || p.parent < 0 {
			t.Errorf("%+v", p)
		}
	})
}

func TestCPUTime(t *testing.T) {
	const s = time.Second
	all := []process{
		{pid: 1, own: 100 * s},
		{pid: 10, parent: 1, own: 1 * s, children: 2 * s},
		{pid: 11, parent: 10, own: 3 * s},
		{pid: 12, parent: 11, children: 4 * s},
		{pid: 20, parent: 1, own: 50 * s},
	}
	// Of 11, the kernel knows better than its ticks.
	exact := func(pid int) time.Duration {
		return map[int]time.Duration{11: 3*s + 5*time.Millisecond, 10: s / 2}[pid]
	}
	if got, want := cpuTime(all, 10, exact), 10*s+5*time.Millisecond; got != want {
		t.Errorf("cpuTime = %v, want %v", got, want)
	}
	if got := pidsOf(below(all, 10), 10); !cmp.Equal(got, []int{11, 12}) {
		t.Errorf("below 10: %v", got)
	}
	loop := []process{{pid: 2, parent: 3}, {pid: 3, parent: 2}}
	if got := pidsOf(below(loop, 2)); !cmp.Equal(got, []int{2, 3}) {
		t.Errorf("of a loop: %v", got)
	}
}

func TestMachine(t *testing.T) {
	info := []byte("MemTotal:       2048 kB\nMemFree: x kB\nBad: 5 MB\n")
	for name, want := range map[string]uint64{"MemTotal": 2 << 20, "MemFree": 0, "Bad": 0, "None": 0} {
		if got := kilobytes(info, name); got != want {
			t.Errorf("%s = %d, want %d", name, got, want)
		}
	}
	if got := osName([]byte("ID=x\nPRETTY_NAME=\"Some System\"\n")); got != "Some System" {
		t.Errorf("osName = %q", got)
	}
	m := lookAround(t.TempDir())
	if m.CPUs == 0 || m.Memory == 0 || m.Kernel == "" {
		t.Errorf("this machine is %+v", m)
	}
}

func TestTimedScript(t *testing.T) {
	w := testWorld(t)
	o, err := w.run(context.Background(), command{argv: []string{"/bin/sh", "-c", "set -e\n" + timed("step", "/bin/true")}})
	if err != nil {
		t.Fatal(err)
	}
	took, err := parseTimes(string(o.out))
	if err != nil || took["step"] <= 0 {
		t.Errorf("%v, %v", took, err)
	}
}
