package instance

import (
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// checkRoot refuses a root directory that is no mount point, which is a plain
// chroot's: the kernel keeps no mount below it from being seen outside. proc is
// /proc; where it can't be read, another step says so.
func checkRoot(proc string) error {
	mounted := false
	err := eachMount(filepath.Join(proc, "self/mountinfo"), func(_ string, m mountinfo.Mount) { mounted = mounted || m.Point == "/" })
	if mounted || err != nil {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "this is a chroot whose root directory is no mount point, where no sandbox can be made").
		WithHint("outside, before chroot: mount --bind DIR DIR; or enter it by pivot_root, as containers do")
}
