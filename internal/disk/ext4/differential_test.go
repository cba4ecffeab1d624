package ext4_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

// kinds are file systems as mke2fs makes them.
var kinds = []string{
	"-t ext4 -b 1024",
	"-t ext4 -b 4096",
	"-t ext4 -b 2048",
	"-t ext2 -b 1024",
	"-t ext2 -b 4096 -I 128",
	"-t ext2 -b 1024 -r 0 -O none",
	"-t ext3 -b 1024",
	"-t ext3 -b 4096",
	"-t ext4 -b 1024 -O ^extents,^64bit",
	"-t ext4 -b 1024 -O ^64bit",
	"-t ext4 -b 4096 -O ^metadata_csum",
	"-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
	"-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit",
	"-t ext4 -b 1024 -O inline_data",
	"-t ext4 -b 4096 -O inline_data -I 512",
	"-t ext4 -b 4096 -O inline_data,^metadata_csum -I 1024",
	"-t ext4 -b 4096 -O ^has_journal",
	"-t ext4 -b 1024 -O bigalloc -C 4096",
	"-t ext4 -b 4096 -O bigalloc -C 65536",
	"-t ext4 -b 1024 -O ^dir_index",
	"-t ext4 -b 1024 -O ^filetype",
	"-t ext4 -b 1024 -O large_dir",
	"-t ext4 -b 1024 -O meta_bg,^resize_inode -g 1024",
	"-t ext4 -b 1024 -O meta_bg,^resize_inode,^64bit,^metadata_csum -g 256 -N 4000",
	"-t ext4 -b 1024 -O sparse_super2 -g 2048",
	"-t ext4 -b 1024 -O metadata_csum_seed",
	"-t ext4 -b 4096 -O ea_inode,large_dir",
	"-t ext4 -b 1024 -O quota,project",
	"-t ext4 -b 4096 -O encrypt",
	"-t ext4 -b 4096 -O casefold",
	"-t ext4 -b 4096 -O orphan_file",
	"-t ext4 -b 4096 -O fast_commit",
	"-t ext4 -b 4096 -O verity,stable_inodes",
	"-t ext4 -b 1024 -O ^flex_bg -g 1024",
	"-t ext4 -b 1024 -O ^sparse_super,^resize_inode -g 1024",
	"-t ext4 -b 4096 -O mmp",
	"-t ext4 -b 1024 -I 128 -O ^metadata_csum",
	"-t ext4 -b 1024 -I 1024",
	"-t ext4 -b 8192",
	"-t ext4 -b 16384",
	"-t ext4 -b 65536",
	"-t ext4 -b 65536 -O ^extents,^64bit,^metadata_csum",
	"-t ext4 -b 2048 -O inline_data,^dir_index,^has_journal",
}

// usualTrees is how many trees are generated when all are: make test has one of each kind.
var usualTrees = 4 * len(kinds)

// trees is how many it is to be now; CARBOY_EXT4_TREES has them be more or fewer.
func trees(t *testing.T) int {
	t.Helper()
	said := os.Getenv("CARBOY_EXT4_TREES")
	if said == "" {
		return long.Rounds(len(kinds), usualTrees)
	}
	n, err := strconv.Atoi(said)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func mke2fs(t *testing.T, image, size string, args ...string) {
	t.Helper()
	if err := os.Remove(image); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	run(t, "mke2fs", append(append([]string{"-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"}, args...), image, size)...)
}

// TestTrees: what mke2fs makes of a tree reads as the kernel reads it, or, where the kernel knows no
// such file system, as the tree itself does.
func TestTrees(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	entries, mounted, count := 0, 0, trees(t)
	for n := range count {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			kind := strings.Fields(rotate(kinds, n))
			tree := filepath.Join(dir, fmt.Sprint("tree", n))
			if err := os.Mkdir(tree, 0o755); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(tree)
			size, most := "16m", 24
			if n%10 == 9 {
				most = 250
			}
			if strings.Contains(rotate(kinds, n), "65536") {
				size = "160m"
			}
			grow(t, uint64(n), tree, most, 4<<20)
			mke2fs(t, image, size, append(kind, "-d", tree)...)
			if m := mount(t, image, "ro"); m != nil {
				defer m.Close()
				entries += compare(t, image, m.root, true)
				mounted++
			} else {
				entries += compare(t, image, tree, false)
			}
			if t.Failed() {
				t.Logf("made by mke2fs %q", kind)
			}
		})
	}
	t.Logf("%d trees with %d entries; %d of them were mounted", count, entries, mounted)
}
