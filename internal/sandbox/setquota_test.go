package sandbox_test

import (
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestSetWithinQuota: a sandbox can be set to nothing that its owner could not have
// created; another owner's can.
func TestSetWithinQuota(t *testing.T) {
	m := quotaManager(t, &rules{quota: sandbox.Quota{CPUs: 2, Memory: 4 << 30, Disk: 10 << 30, TTL: time.Hour}, creates: -1})
	hour, day := time.Hour, 24*time.Hour
	for _, owner := range []string{"key:acme", "key:free"} {
		c := sandbox.Caller{Owner: owner}
		if _, err := m.Create(t.Context(), c, sandbox.Spec{Name: "web", TTL: hour, Limits: sandbox.Limits{Memory: 1 << 30}}, nil); err != nil {
			t.Fatal(err)
		}
		for name, ch := range map[string]sandbox.Change{
			"cpus": {CPUs: 3}, "memory": {Memory: 5 << 30}, "ttl": {TTL: &day}, "no-end": {TTL: new(time.Duration)},
		} {
			_, _, err := m.Set(t.Context(), c, "web", ch)
			if owner == "key:free" {
				if err != nil {
					t.Errorf("%s without a quota: %v", name, err)
				}
				continue
			}
			wantKind(t, name, err, sandbox.Invalid)
		}
		if _, _, err := m.Set(t.Context(), c, "web", sandbox.Change{CPUs: 2, TTL: &hour}); err != nil {
			t.Errorf("%s: within the quota: %v", owner, err)
		}
	}
}
