package daemon

import (
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The sandboxes of a team's builds are no larger than its own may be; how many
// there are, and for how long, is not theirs to be counted by.
func TestQuotaOfBuilds(t *testing.T) {
	all := Limits{Sandboxes: 1, CPUs: 2, Memory: 1 << 30, Disk: 1 << 31, Timeout: Duration(time.Minute)}
	q := quotas{Config{Limits: map[string]Limits{"key:a": all, "default": {Memory: 1 << 20}}}.book()}
	usual := sandbox.Floor{Wall: sandbox.WallGVisor, Setting: "weakest_isolation, of who comes with a key,"}
	for owner, want := range map[string]sandbox.Quota{
		"key:a":             {Sandboxes: 1, CPUs: 2, Memory: 1 << 30, Disk: 1 << 31, TTL: time.Minute, Floor: usual},
		"template:key:a":    {CPUs: 2, Memory: 1 << 30, Disk: 1 << 31, Floor: usual},
		"template:key:b":    {Memory: 1 << 20, Floor: usual},
		"template:uid:1000": {},
		"template:carboy":   {}, // the daemon's own
	} {
		if got := q.Quota(owner); got != want {
			t.Errorf("%s: %+v, want %+v", owner, got, want)
		}
	}
}
