package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// programs are where the machine's own image has what its PATH finds.
var programs = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// warnOfPython tells an operator beforehand what LangBot's tools would fail by:
// where file systems are separate they run "python", by which name a sandbox
// knows the python3 of its image, too.
func warnOfPython(log *slog.Logger, image string, shared bool, dirs []string) {
	has := func(name string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			st, err := os.Stat(filepath.Join(dir, name))
			return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
		})
	}
	if image != sandbox.DefaultImage || shared || has("python") || has("python3") {
		return
	}
	log.Warn("LangBot's file tools run python in the sandbox, and this machine's own image has none: name an image that has it in box.image", "image", image)
}
