package boot

import (
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/hostlock"
)

// annotationShares lists, in a spec, where inside are directories whose files' locks hold for
// others as well: the host's programs, and other sandboxes.
const annotationShares = "carboy.shares"

// passLocks has the locks of files in shares hold outside as well. It is the sentry's own
// arguments that say by which connections shares are served.
func passLocks(args []string) {
	spec, err := donatedSpec(args)
	if err != nil {
		return
	}
	shares := hostlock.New(shareConns(spec, args))
	wrapCalls(shares.Fcntl, "fcntl")
	wrapCalls(shares.Flock, "flock")
}

// shareConns are the descriptors of the connections to the gofer that serve shares: gVisor hands
// down the root's first, and then one for each mount of the host's, in the spec's order.
func shareConns(spec *specs.Spec, args []string) (conns []int) {
	var all []int
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--io-fds="); ok {
			for n := range strings.SplitSeq(v, ",") {
				if fd, err := strconv.Atoi(n); err == nil {
					all = append(all, fd)
				}
			}
		}
	}
	shared := strings.Split(spec.Annotations[annotationShares], "\n")
	next := 1
	for _, m := range spec.Mounts {
		if m.Type != "bind" {
			continue
		}
		if next < len(all) && slices.Contains(shared, m.Destination) {
			conns = append(conns, all[next])
		}
		next++
	}
	return conns
}
