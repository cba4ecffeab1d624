package filters

import (
	_ "unsafe" // for linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentryfilter "gvisor.dev/gvisor/runsc/boot/filter"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// The maps that gVisor looks programs up in. They are made, empty, when one is
// looked up for the first time.
var (
	//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
	sentryPrograms map[string]precompiledseccomp.Program
	//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
	goferPrograms map[string]precompiledseccomp.Program
)

// register adds programs to those that the sentry and the gofer find.
func register(sentry, gofer func() []precompiledseccomp.Program) {
	sentryfilter.GetPrecompiled("")
	goferfilter.GetPrecompiled("")
	for _, p := range sentry() {
		sentryPrograms[p.Name] = p
	}
	for _, p := range gofer() {
		goferPrograms[p.Name] = p
	}
}
