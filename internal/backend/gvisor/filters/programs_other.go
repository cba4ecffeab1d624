//go:build !amd64

package filters

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

func sentry() []precompiledseccomp.Program { return nil }

func gofer() []precompiledseccomp.Program { return nil }
