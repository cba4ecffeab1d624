package gvisor

import (
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
)

// Roles of the program that boots instances: see package boot.
const (
	RoleLauncher = "carboy-gvisor-launcher"
	RoleSuspend  = "carboy-gvisor-suspend"
	RoleSentry   = "runsc-sandbox" // gVisor's own name for it
	RoleGofer    = "runsc-gofer"   // likewise
)

// By its STRICT policy gVisor executes programs of a directory, which a
// variable names: a "prewarmer", and by that the sentry.
const (
	SentryName    = "gvisor_sentry"
	PrewarmerName = "gvisor-sentry-prewarmer"

	// SidecarsFD is the directory, in a launcher: a number that is always the
	// same, above those that gVisor comes to.
	SidecarsFD = 230
)

// SidecarsDir leads there past any directory that a sentry's user can't enter.
var SidecarsDir = "/proc/self/fd/" + strconv.Itoa(SidecarsFD)

// RolePrewarmer is what gVisor executes for a sentry.
var RolePrewarmer = SidecarsDir + "/" + PrewarmerName

// AfterPrewarmer returns the sentry's arguments of those of a prewarmer, which
// has the sentry's file in front of them. To be the sentry is quicker than to
// execute it, and comes to the same: no file is another than this one.
func AfterPrewarmer(args []string) []string {
	if len(args) > 2 && args[0] == RolePrewarmer && args[1] == SidecarsDir+"/"+SentryName {
		return args[2:]
	}
	return args
}

// stray knows a wall process by gVisor's own flag that holds the instance's
// directory.
func stray(args []string, dir string) bool {
	args = AfterPrewarmer(args)
	return (args[0] == RoleSentry || args[0] == RoleGofer) &&
		slices.Contains(args[1:], "--root="+filepath.Join(dir, instance.DirState))
}

// CPUPeriod is the scheduling period of processor quotas, in microseconds.
const CPUPeriod = 100_000

// CPUCount is how many processors the guest sees for a quota: the next whole
// number, at least two (programs drop locks that they need on one), at most
// the host's.
func CPUCount(quota int64, period uint64) int {
	n := int((quota + int64(period) - 1) / int64(period))
	return min(max(n, 2), runtime.NumCPU())
}
