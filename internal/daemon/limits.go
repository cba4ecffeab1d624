package daemon

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// defaultLimits is the name under which Config.Limits has those of teams that
// are not named.
const defaultLimits = "default"

// Limits are what one team may have and do. What is left out is not bounded.
type Limits struct {
	Sandboxes         int      `json:"sandboxes"` // that are not stopped, at the same time
	CPUs              float64  `json:"cpus"`      // of each sandbox
	Memory            Size     `json:"memory"`    // of each sandbox
	Disk              Size     `json:"disk"`      // of each sandbox
	Timeout           Duration `json:"timeout"`   // of each sandbox; then each needs one
	CreatesPerMinute  float64  `json:"creates"`   // sandboxes created in a minute
	RequestsPerSecond float64  `json:"requests"`  // of each key in a second: those that read, and those that change something
	Burst             int      `json:"burst"`     // requests that may come at once; 0: two seconds' worth
	Builds            int      `json:"builds"`    // of templates, at the same time
	Templates         int      `json:"templates"` // that a team has
	Volumes           int      `json:"volumes"`   // that a team has
	Snapshots         int      `json:"snapshots"` // that a team has, those of templates' builds not counted
	Secrets           int      `json:"secrets"`   // that a team has by E2B's API
	Isolation         string   `json:"isolation"` // the weakest wall of each sandbox; "": see Config.WeakestIsolation
}

// checkLimits refuses what can't be a limit, and names for nobody.
func (c Config) checkLimits() error {
	if w := c.WeakestIsolation; w != "" && !sandbox.ValidWall(w) {
		return sandbox.Errorf(sandbox.Invalid, "weakest_isolation %.80q: there is no such wall", w)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		l := c.Limits[name]
		if l.Isolation != "" && !sandbox.ValidWall(l.Isolation) {
			return sandbox.Errorf(sandbox.Invalid, "limits: isolation of %s: there is no wall %.80q", name, l.Isolation)
		}
		if name != defaultLimits && !strings.HasPrefix(name, "key:") && !strings.HasPrefix(name, "uid:") {
			return sandbox.Errorf(sandbox.Invalid, "limits: %.80q is nobody", name).
				WithHint(`"key:ID" for a team, "uid:1000" for a user, or %q`, defaultLimits)
		}
		for field, n := range map[string]float64{
			"sandboxes": float64(l.Sandboxes), "cpus": l.CPUs, "memory": float64(l.Memory), "disk": float64(l.Disk),
			"timeout": time.Duration(l.Timeout).Seconds(), "creates": l.CreatesPerMinute, "requests": l.RequestsPerSecond,
			"burst": float64(l.Burst), "builds": float64(l.Builds), "templates": float64(l.Templates),
			"volumes": float64(l.Volumes), "snapshots": float64(l.Snapshots), "secrets": float64(l.Secrets),
		} {
			if n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
				return sandbox.Errorf(sandbox.Invalid, "limits: %s of %s: it must not be less than 0", field, name).
					WithHint("leave it out for no bound")
			}
		}
	}
	return nil
}

func (l Limits) team() team.Limits {
	return team.Limits{
		Quota: sandbox.Quota{
			Sandboxes: l.Sandboxes, CPUs: l.CPUs, Memory: int64(l.Memory), Disk: int64(l.Disk), TTL: time.Duration(l.Timeout), Snapshots: l.Snapshots,
		},
		CreatesPerMinute: l.CreatesPerMinute, RequestsPerSecond: l.RequestsPerSecond, Burst: l.Burst,
		Builds: l.Builds, Templates: l.Templates, Volumes: l.Volumes, Secrets: l.Secrets,
		Isolation: l.Isolation,
	}
}

// MostSecrets returns how many secrets each owner may have; 0 for one without such
// a limit.
func (c Config) MostSecrets() func(owner string) int {
	book := c.book()
	return func(owner string) int { return book.Limits(owner).Secrets }
}

// book returns everyone's limits.
func (c Config) book() *team.Book {
	named := map[string]team.Limits{}
	for name, l := range c.Limits {
		if name != defaultLimits {
			named[name] = l.team()
		}
	}
	return team.NewBookOver(c.WeakestIsolation, c.Limits[defaultLimits].team(), named)
}

// quotas are everyone's, and bound the sandboxes of their builds too: how many
// there are of those is for templates to say, and when they end.
type quotas struct{ *team.Book }

// Quota implements sandbox.Quotas.
func (q quotas) Quota(owner string) sandbox.Quota {
	of, ok := template.BuiltBy(owner)
	if !ok {
		return q.Book.Quota(owner)
	}
	all := q.Book.Quota(of)
	return sandbox.Quota{CPUs: all.CPUs, Memory: all.Memory, Disk: all.Disk, Floor: all.Floor}
}
