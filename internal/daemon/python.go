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
// where file systems are separate they run "python", which many systems have as
// "python3" alone. Nothing is put beside what an image has: it would be another
// one in a session than in a sandbox.
func warnOfPython(log *slog.Logger, image string, shared bool, dirs []string) {
	has := func(name string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			st, err := os.Stat(filepath.Join(dir, name))
			return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
		})
	}
	if image != sandbox.DefaultImage || shared || has("python") {
		return
	}
	remedy := "name an image that has it in box.image"
	if has("python3") {
		remedy = "install python-is-python3 on this machine, or " + remedy
	}
	log.Warn("LangBot's file tools run python in the sandbox, and this machine's own image has none: "+remedy, "image", image)
}
