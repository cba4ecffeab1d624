package instance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestCheckRoot(t *testing.T) {
	const proc = "28 21 0:25 / /proc rw,relatime - proc proc rw\n"
	tests := []struct {
		name, mounts string
		want         sandbox.Kind
	}{
		{"a-machine", "21 1 8:1 / / rw - ext4 /dev/vda rw\n" + proc, ""},
		{"a-chroot", proc + "29 21 8:1 /usr /usr rw - ext4 /dev/vda rw\n", sandbox.Unsupported},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "self"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "self/mountinfo"), []byte(tt.mounts), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := sandbox.KindOf(checkRoot(dir)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
