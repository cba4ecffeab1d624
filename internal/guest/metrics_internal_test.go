package guest

import "testing"

func TestUsed(t *testing.T) {
	m := &meter{}
	steps := []struct {
		stat string
		want float64
	}{
		{"cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3 4\n", 20},
		{"cpu  20 0 20 100 60 0 0 0 9 9\n", 20},
		{"cpu  20 0 20 100 60 0 0 0 9 9\n", 0},
		{"cpu  0 0 0 0 0 0 0 0 0 0\n", 0}, // a kernel that counts nothing
		{"nothing", 0},
		{"cpu x y z a b", 0},
	}
	for _, s := range steps {
		if got := m.used([]byte(s.stat)); got != s.want {
			t.Errorf("%q: %v, want %v", s.stat, got, s.want)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	got := parseMeminfo([]byte("MemTotal:  2048 kB\nMemAvailable: 1024 kB\nHugePages_Total: 3\nBad: x kB\nnothing\n"))
	if got["MemTotal"] != 2<<20 || got["MemAvailable"] != 1<<20 || got["HugePages_Total"] != 3 || len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

func FuzzProc(f *testing.F) {
	f.Add([]byte("cpu  10 0 10 80 0 0 0 0 0 0\nMemTotal: 1 kB\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parseMeminfo(text)
		m := &meter{}
		if pct := m.used(text); pct < 0 || pct > 100 {
			t.Errorf("%q: %v %%", text, pct)
		}
	})
}
