package jail

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// weaken seeds, in weakened binaries, what a command must not have.
func weaken(attr *syscall.ProcAttr) {
	if weak.On(weak.GroupsKept) && !slices.Contains(attr.Sys.Credential.Groups, 0) {
		attr.Sys.Credential.Groups = append(slices.Clone(attr.Sys.Credential.Groups), 0)
	}
	if weak.On(weak.CapabilityKept) {
		attr.Sys.AmbientCaps = weakCapabilities
	}
	if weak.On(weak.DescriptorsKept) {
		keepDescriptors()
	}
}

// keepDescriptors lets commands inherit the agent's files, directories,
// namespaces and sockets. Pipes stay its own, lest somebody waits for their
// end for ever.
func keepDescriptors() {
	for fd := 3; fd < 1024; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFDIR, unix.S_IFSOCK:
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
	}
}
