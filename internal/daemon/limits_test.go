package daemon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestConfigOfLimits(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       map[string]daemon.Limits
		refused    string
	}{
		{name: "none", file: `{}`},
		{
			name: "all", file: `{"limits":{"default":{"sandboxes":2,"cpus":1.5,"memory":"1g","disk":1048576,"timeout":"1h","creates":6,
			"requests":0.5,"burst":3,"builds":1,"templates":2,"volumes":3,"snapshots":5,"secrets":4},"key:a":{},"uid:1000":{"sandboxes":1}}}`,
			want: map[string]daemon.Limits{
				"default": {
					Sandboxes: 2, CPUs: 1.5, Memory: 1 << 30, Disk: 1 << 20, Timeout: daemon.Duration(time.Hour), CreatesPerMinute: 6,
					RequestsPerSecond: 0.5, Burst: 3, Builds: 1, Templates: 2, Volumes: 3, Snapshots: 5, Secrets: 4,
				},
				"key:a": {}, "uid:1000": {Sandboxes: 1},
			},
		},
		{name: "nobody", file: `{"limits":{"acme":{}}}`, refused: `"acme" is nobody`},
		{name: "negative", file: `{"limits":{"default":{"sandboxes":-1}}}`, refused: "sandboxes of default"},
		{name: "odd-size", file: "{\n\"limits\":{\"default\":{\n\"cpus\":1,\n\"memory\":\"8x\"}}}", refused: `line 4: limits.default.memory: "8x" is not a size: use a number of bytes, or one with k, m, g or t, such as "512m" or "8g"`},
		{name: "negative-size", file: `{"limits":{"default":{"disk":-1}}}`, refused: `limits.default.disk: -1 is not a size`},
		{name: "twice", file: `{"limits":{"key:a":{"cpus":1,"cpus":2}}}`, refused: "line 1: limits"},
		{name: "unknown", file: `{"limits":{"default":{"sandbox":1}}}`, refused: "sandbox"},
		{name: "odd-time", file: `{"limits":{"default":{"timeout":"soon"}}}`, refused: `config.json: line 1: limits.default.timeout: "soon" is not a duration`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := readConfig(t, tt.file)
			if tt.refused != "" {
				if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error = %v, want an invalid with %q", err, tt.refused)
				}
				return
			}
			// The directories are another test's matter.
			if err != nil && !strings.Contains(err.Error(), "directories") {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, cfg.Limits); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
		})
	}
}
