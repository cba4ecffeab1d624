package instance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What a guest says of itself is bounded by what can be.
func TestParseFigures(t *testing.T) {
	tests := []struct {
		name, raw string
		want      sandbox.Usage
		fails     bool
	}{
		{
			name: "plain", raw: `{"cpu_used_pct":25,"mem_total":100,"mem_used":40,"mem_cache":5,"disk_used":7,"disk_total":9,"ts":1}`,
			want: sandbox.Usage{CPU: -1, Load: 0.25, Memory: 40, Cache: 5, Disk: 7, DiskTotal: 9},
		},
		{
			name: "more-than-all", raw: `{"cpu_used_pct":1e300,"mem_total":100,"mem_used":400,"mem_cache":500,"disk_used":18446744073709551615,"disk_total":9}`,
			want: sandbox.Usage{CPU: -1, Load: 1, Memory: 100, Cache: 100, Disk: 9, DiskTotal: 9},
		},
		{name: "less-than-none", raw: `{"cpu_used_pct":-5}`, want: sandbox.Usage{CPU: -1}},
		{name: "negative-size", raw: `{"mem_used":-1}`, fails: true},
		{name: "no-object", raw: `[]`, fails: true},
		{name: "nothing", raw: ``, fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseFigures([]byte(tt.raw))
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseFigures(f *testing.F) {
	f.Add([]byte(`{"cpu_used_pct":25,"mem_total":100,"mem_used":40}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u, err := parseFigures(raw)
		if err == nil && (u.Load < 0 || u.Load > 1 || u.Memory < 0 || u.Cache < 0 || u.Disk < 0 || u.Disk > u.DiskTotal) {
			t.Errorf("%q: %+v", raw, u)
		}
	})
}
