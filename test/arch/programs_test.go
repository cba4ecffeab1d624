package arch

import (
	"fmt"
	"slices"
	"testing"
)

// programs are what carboy is made of, and what each does not link: that would be loaded,
// and initialized, at each of its starts.
var programs = map[string][]string{
	"cmd/carboy": slices.Concat(wall, storage, []string{
		own("internal/server"), own("internal/e2b"), own("internal/langbot"), own("contrib"), own("internal/bench"), own("internal/backend/instance"),
		own("internal/backend/gvisor"), own("internal/backend/process"), own("internal/image"), own("internal/gitgate"),
		"github.com/prometheus", "github.com/google", "github.com/docker", "github.com/opencontainers", // their tables are made at each start
	}),
	"cmd/carboy-daemon": {
		own("internal/backend/gvisor/boot"), "gvisor.dev/gvisor/runsc", "gvisor.dev/gvisor/pkg/sentry",
		own("internal/cli"), "github.com/spf13", "github.com/charmbracelet",
	},
	"cmd/carboy-gate": slices.Concat(storage, []string{
		own("internal/server"), own("internal/daemon"), own("internal/cli"), own("internal/session"), own("internal/image"),
		own("internal/gitgate"), own("internal/guest/guestbin"), "gvisor.dev/gvisor/runsc", "gvisor.dev/gvisor/pkg/sentry",
		"github.com/spf13", "github.com/prometheus",
	}),
	"cmd/carboy-gvisor": slices.Concat(storage, []string{
		own("internal/server"), own("internal/daemon"), own("internal/cli"), own("internal/egress/proxy"),
		own("internal/gitgate"), own("client"), "github.com/spf13", "github.com/prometheus",
	}),
}

// embeds is the package that carries the programs: of those it is in carboy alone.
const embeds = "internal/program"

func TestPrograms(t *testing.T) {
	ps := packages(t)
	for name := range programs {
		if !slices.ContainsFunc(ps, func(p pkg) bool { return p.name() == name }) {
			t.Errorf("%s: a program that is not there", name)
		}
	}
	for _, problem := range overlinked(ps) {
		t.Error(problem)
	}
}

// overlinked lists what programs link although they are not to.
func overlinked(ps []pkg) (problems []string) {
	for _, p := range ps {
		for _, not := range programs[p.name()] {
			if i := slices.IndexFunc(p.Deps, func(dep string) bool { return within(dep, not) && dep != interfaces }); i >= 0 {
				problems = append(problems, fmt.Sprintf("%s links %s", p.name(), p.Deps[i]))
			}
		}
		if programs[p.name()] != nil && (p.name() == "cmd/carboy") != slices.Contains(p.Deps, own(embeds)) {
			problems = append(problems, fmt.Sprintf("%s links %s: %v", p.name(), embeds, p.name() != "cmd/carboy"))
		}
	}
	return problems
}

func TestProgramsRefuse(t *testing.T) {
	for _, tt := range []struct {
		pkg  pkg
		want int
	}{
		{pkg{ImportPath: own("cmd/carboy"), Deps: []string{own(embeds), "io"}}, 0},
		{pkg{ImportPath: own("cmd/carboy"), Deps: []string{"io"}}, 1},
		{pkg{ImportPath: own("cmd/carboy"), Deps: []string{own(embeds), "gvisor.dev/gvisor/pkg/tcpip"}}, 1},
		{pkg{ImportPath: own("cmd/carboy-daemon"), Deps: []string{"gvisor.dev/gvisor/pkg/tcpip"}}, 0},
		{pkg{ImportPath: own("cmd/carboy-daemon"), Deps: []string{"gvisor.dev/gvisor/pkg/sentry/kernel"}}, 1},
		{pkg{ImportPath: own("cmd/carboy-daemon"), Deps: []string{own(embeds)}}, 1},
		{pkg{ImportPath: own("internal/x"), Deps: []string{own(embeds), "gvisor.dev/gvisor/pkg/tcpip"}}, 0},
	} {
		if got := overlinked([]pkg{tt.pkg}); len(got) != tt.want {
			t.Errorf("%s with %q: %q", tt.pkg.name(), tt.pkg.Deps, got)
		}
	}
}
