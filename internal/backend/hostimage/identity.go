package hostimage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// identified are what an upgrade, an installation or a removal of programs
// changes: directories, and the lists that package managers keep.
var identified = slices.Concat(commandDirs, []string{
	"usr/lib", "usr/lib64", "usr/lib/*-linux-*", "usr/libexec", "usr/local/lib", "usr/share", "etc/os-release",
	"etc/ld.so.cache", "var/lib/dpkg/status", "lib/apk/db/installed", "usr/lib/apk/db/installed",
	"var/lib/rpm/Packages", "var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/pacman/local", "nix/var/nix/profiles/system",
})

// Identity names the machine's own programs below root: it is another once they
// were upgraded, and the same after a boot. A program that somebody changed in
// its place does not change it.
func Identity(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, "carboy-host-1", format)
	for _, pattern := range identified {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", fmt.Errorf("identify the host image: %w", err)
		}
		for _, path := range paths {
			fi, err := os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("identify the host image: %w", err)
			}
			fmt.Fprintf(h, "%q %d %d\n", path, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
