package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDataIsALink: a volume's root directory, whole or half made, leads to
// nothing of the host's.
func TestDataIsALink(t *testing.T) {
	for _, name := range []string{dirData, dirData + ".new"} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			host, at := filepath.Join(base, "host"), filepath.Join(base, "at")
			for _, dir := range []string{host, at} {
				if err := os.Mkdir(dir, 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(host, filepath.Join(at, name)); err != nil {
				t.Fatal(err)
			}
			if err := makeData(at, dirData); err == nil {
				t.Error("it was taken for a volume's root")
			}
			var st unix.Stat_t
			if err := unix.Stat(host, &st); err != nil {
				t.Fatal(err)
			}
			if st.Mode != unix.S_IFDIR|0o750 || int(st.Uid) != os.Geteuid() {
				t.Errorf("the host's directory has mode %#o and is %d's", st.Mode, st.Uid)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		at := t.TempDir()
		for range 2 {
			if err := makeData(at, dirData); err != nil {
				t.Fatal(err)
			}
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(at, dirData), &st); err != nil || st.Mode != unix.S_IFDIR|dataMode {
			t.Errorf("mode %#o, %v", st.Mode, err)
		}
	})
}
