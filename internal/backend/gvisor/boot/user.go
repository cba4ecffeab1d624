package boot

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Sentries' ids are above those of instances (see package process), below those of
// gates (see package egress), and within what systemd keeps for containers.
const (
	firstSentry = 1_860_200_000
	sentryCount = 1_800_000
)

// nobody is what gVisor would run every sentry as, and many a service too.
const nobody = 65534

// sentryUser is whom the sentry of an instance runs as where root made it: somebody
// whom nothing else belongs to, so that no process of another user's signals
// or traces it. Two may share one: each is in a pid namespace of its own too.
func sentryUser(id string) int {
	if weak.On(weak.SentriesShared) {
		return nobody
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return firstSentry + int(h.Sum32()%sentryCount)
}

// flagRootless has gVisor run the sentry as the real user of the thread that
// creates it, and leave the owner of its streams alone. Without it that user is
// nobody, whom gVisor gives the streams to: the host's /dev/null.
const flagRootless = "--rootless"

// asSentry runs f with the real user that the instance's sentry is to have. That is
// the calling thread's alone, and its rights stay root's: what f starts from
// other threads, the gofer among it, is root's as before.
func asSentry(p *gvisor.Order, f func() error) error {
	if p.Rootless { // it is the user namespace's root
		return f()
	}
	id := uint32(sentryUser(p.ID))
	if err := rights.Real(id, id); err != nil {
		return fmt.Errorf("become the sentry's user: %w", err)
	}
	err := f()
	if rerr := rights.Real(0, 0); err == nil && rerr != nil {
		err = fmt.Errorf("become root again: %w", rerr)
	}
	return err
}

// asRootMade returns a sentry's arguments without flagRootless where root made
// it: it then gives up its capabilities and its /proc, which without root it
// can't. ids is its /proc/self/uid_map.
func asRootMade(args []string, ids string) []string {
	if f := strings.Fields(ids); len(f) != 3 || f[1] == "0" {
		return args
	}
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == flagRootless+"=true" })
}

// ownIDs is how the ids of this process are mapped.
func ownIDs() string {
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil { // it has none any more, and was asked before
		return ""
	}
	return string(raw)
}
