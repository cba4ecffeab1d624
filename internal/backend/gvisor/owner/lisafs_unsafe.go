package owner

import (
	"slices"
	_ "unsafe" // for linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/lisafs"
	_ "gvisor.dev/gvisor/runsc/cmd" // has what goferCaps is
)

// handlers answer the requests of a gofer's clients.
//
//go:linkname handlers gvisor.dev/gvisor/pkg/lisafs.handlers
var handlers [lisafs.RenameAt2 + 1]lisafs.RPCHandler

// goferCaps are the capabilities that a gofer leaves itself.
//
//go:linkname goferCaps gvisor.dev/gvisor/runsc/cmd.goferCaps
var goferCaps *specs.LinuxCapabilities

// keepCapabilities adds to them.
func keepCapabilities(names ...string) {
	for _, set := range []*[]string{
		&goferCaps.Bounding, &goferCaps.Effective, &goferCaps.Permitted, &goferCaps.Inheritable, &goferCaps.Ambient,
	} {
		*set = slices.Concat(*set, names)
	}
}
