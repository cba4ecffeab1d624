package tree_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// TestBudget: what a pod's budget has no room for is refused, anywhere below it, whoever spawns it; what has ended counts no more.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget scope.Budget
		want   string // "": there is room
	}{
		{"none", scope.Budget{}, ""},
		{"enough", scope.Budget{Pods: 4, Depth: 2, CPUs: 4, Memory: 4 << 20, PIDs: 40}, ""},
		{"pods", scope.Budget{Pods: 3}, "pod `root`: below it there may be 3 pods at once, and there are"},
		{"depth", scope.Budget{Depth: 1}, "pod `root`: below it 1 pods may stand one below the other"},
		{"cpus", scope.Budget{CPUs: 3.5}, "3.5 cpus together, and this would make it 4"},
		{"memory", scope.Budget{Memory: 3 << 20}, "3m of memory together, and this would make it 4m"},
		{"processes", scope.Budget{PIDs: 39}, "39 processes together, and this would make it 40"},
		{"processes without a limit", scope.Budget{PIDs: 1000}, "this one would have no limit of them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := family(t).All()
			limits := api.Limits{CPUs: 1, Memory: 1 << 20, PIDs: 10}
			unlimited := strings.HasSuffix(tt.name, "without a limit")
			if unlimited {
				limits = api.Limits{}
			}
			for i := range all {
				if all[i].Name == "root" {
					all[i].Bounds.Budget = tt.budget
				} else {
					all[i].Bounds.Limits = limits
				}
			}
			tr := mustTree(t, all...)
			add := pod("new", "a", rw("/w/a/new"))
			add.Bounds.Limits = limits
			_, err := tr.Delegate(add)
			if (err == nil) != (tt.want == "") || err != nil && (sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			if tt.name == "depth" || unlimited || tt.want == "" {
				return
			}
			remove(t, tr, "b")
			if _, err := tr.Delegate(add); err != nil {
				t.Errorf("after another has ended: %v", err)
			}
		})
	}
}

func remove(t *testing.T, tr *tree.Tree, name string) {
	t.Helper()
	c, err := tr.Remove(name)
	if err != nil {
		t.Fatal(err)
	}
	tr.Apply(c)
}
