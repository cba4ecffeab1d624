package scope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func network(hosts ...string) *policy.Policy {
	return &policy.Policy{Rules: []policy.Rule{{Hosts: hosts}}}
}

func TestUnder(t *testing.T) {
	end := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	parent := scope.Bounds{
		Network: network("a.example", "b.example"), Secrets: []string{"token", "key"},
		Limits: api.Limits{CPUs: 2, Memory: 1 << 30, PIDs: 100}, Until: end,
	}
	for _, tt := range []struct {
		name  string
		child scope.Bounds
		want  string // of the error; "": it is under
	}{
		{"nothing", scope.Bounds{}, ""},
		{"the-same", parent, ""},
		{"less", scope.Bounds{Network: network("a.example"), Limits: api.Limits{CPUs: 1}, Until: end.Add(-time.Hour)}, ""},
		{"what-the-parent-does-not-limit", scope.Bounds{Limits: api.Limits{Disk: 1 << 50}}, ""},
		{"another-host", scope.Bounds{Network: network("c.example")}, "network: rules[0]: no rule of the wider policy allows all that rule-1 does"},
		{"secret", scope.Bounds{Secrets: []string{"token", "other"}}, `secrets: the parent has no secret "other"; it has ["token" "key"]`},
		{"cpus", scope.Bounds{Limits: api.Limits{CPUs: 2.5}}, "cpus: 2.5, where the parent has 2"},
		{"memory", scope.Bounds{Limits: api.Limits{Memory: 2 << 30}}, "memory: 2147483648, where the parent has 1073741824"},
		{"pids", scope.Bounds{Limits: api.Limits{PIDs: -1}}, "pids: -1 can't be a limit"},
		{"later", scope.Bounds{Until: end.Add(time.Second)}, "time: it would end at 2026-11-29T12:00:01Z, and its parent ends at 2026-11-29T12:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.child.Under(parent)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %s", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Limits.PIDs != 100 || got.Until.IsZero() || got.Until.After(end) {
				t.Errorf("%+v does not have what the parent has", got)
			}
		})
	}
	t.Run("no-network", func(t *testing.T) {
		if _, err := parent.Under(scope.Bounds{Secrets: parent.Secrets}); err == nil || !strings.Contains(err.Error(), "network: the parent has none") {
			t.Errorf("%v", err)
		}
	})
	t.Run("all-reasons", func(t *testing.T) {
		_, err := scope.Bounds{Secrets: []string{"x"}, Limits: api.Limits{CPUs: 3}}.Under(parent)
		if err == nil || strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%v, want two reasons", err)
		}
	})
	t.Run("denied-by-the-parent", func(t *testing.T) {
		of := *network("a.example")
		of.Rules = append(of.Rules, policy.Rule{Action: policy.ActionDeny, Hosts: []string{"a.example"}, Matches: []policy.Match{{Paths: []policy.Value{{Type: "prefix", Value: "/admin"}}}}})
		got, err := scope.Bounds{Network: network("a.example")}.Under(scope.Bounds{Network: &of})
		if err != nil || len(got.Network.Rules) != 2 || got.Network.Rules[1].Action != policy.ActionDeny {
			t.Errorf("%v, %v: want the rule that denies", got.Network, err)
		}
	})
}

// TestUnderNeverWidens: down a chain of pods no limit grows and no end comes later, and who is
// under the last is under the first.
func TestUnderNeverWidens(t *testing.T) {
	start := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) scope.Bounds {
			b := scope.Bounds{
				Limits:  api.Limits{CPUs: rapid.Float64Range(0, 4).Draw(t, name+" cpus"), Memory: rapid.Int64Range(0, 4).Draw(t, name+" memory"), PIDs: rapid.Int64Range(0, 4).Draw(t, name+" pids")},
				Secrets: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, name+" secrets"),
			}
			if h := rapid.IntRange(0, 4).Draw(t, name+" hours"); h > 0 {
				b.Until = start.Add(time.Duration(h) * time.Hour)
			}
			if hosts := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a.example", "b.example"}), 0, 2, rapid.ID).Draw(t, name+" hosts"); len(hosts) > 0 {
				b.Network = network(hosts...)
			}
			return b
		}
		top := draw("top")
		child, err := draw("child").Under(top)
		if err != nil {
			return
		}
		grandchild, err := draw("grandchild").Under(child)
		if err != nil {
			return
		}
		again, err := grandchild.Under(top)
		if err != nil {
			t.Fatalf("%+v is under %+v, which is under %+v, and yet: %v", grandchild, child, top, err)
		}
		if d := cmp.Diff(grandchild.Limits, again.Limits); d != "" || !grandchild.Until.Equal(again.Until) {
			t.Errorf("the chain let something go: %s", d)
		}
	})
}
