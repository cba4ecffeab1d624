package workspace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// TestPopulateSharesBlocks: on a file system with reflinks a copy takes hardly any room.
func TestPopulateSharesBlocks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	image, at := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 320<<20))
	for _, argv := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.xfs and loop devices: %q: %v\n%s", argv, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	const size = 20<<20 + 77
	must(t, os.Mkdir(at+"/src", 0o755))
	must(t, os.Mkdir(at+"/dst", 0o755))
	must(t, os.WriteFile(at+"/src/a", bytes.Repeat([]byte("a"), size), 0o644))
	src, err := os.Open(at + "/src")
	must(t, err)
	defer src.Close()
	dst, err := os.Open(at + "/dst")
	must(t, err)
	defer dst.Close()
	free := func() int64 {
		must(t, unix.Syncfs(int(src.Fd())))
		var st unix.Statfs_t
		must(t, unix.Statfs(at, &st))
		return int64(st.Bfree) * st.Bsize
	}
	before := free()
	_, err = workspace.Populate(t.Context(), src, dst, workspace.PopulateOptions{Manifest: new(bytes.Buffer)})
	must(t, err)
	if took := before - free(); took > size/4 {
		t.Errorf("the copy of %d bytes took %d", size, took)
	}
	got, err := os.ReadFile(at + "/dst/a")
	must(t, err)
	if !bytes.Equal(got, bytes.Repeat([]byte("a"), size)) {
		t.Error("the copy is another file")
	}
}
