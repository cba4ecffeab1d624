package ext4_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
)

func debugfs(t *testing.T, image string, commands ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "debugfs", "-w", "-f", "-", image)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	_, said, _ := strings.Cut(string(out), "\n") // behind its version
	for line := range strings.Lines(said) {
		if err != nil || !strings.HasPrefix(line, "debugfs: ") && !strings.HasPrefix(line, "Allocated inode: ") {
			t.Fatalf("debugfs: %v: %s", err, out)
		}
	}
}

// plain is an image with a file /file, a directory /dir with a file, and a link /link.
func plain(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	err := errors.Join(os.MkdirAll(filepath.Join(tree, "dir"), 0o755), os.WriteFile(filepath.Join(tree, "file"), bytes.Repeat([]byte("x"), 70_000), 0o644),
		os.WriteFile(filepath.Join(tree, "dir", "inner"), []byte("x"), 0o644), os.Symlink("file", filepath.Join(tree, "link")))
	if err != nil {
		t.Fatal(err)
	}
	mke2fs(t, image, "8m", append([]string{"-t", "ext4", "-b", "1024", "-d", tree}, args...)...)
	return image
}

// all reads whatever a path names.
func all(f *ext4.FS, path string) error {
	i, err := f.Walk(path)
	if err != nil {
		return err
	}
	switch i.Type() {
	case ext4.Directory:
		for _, err := range i.Entries() {
			if err != nil {
				return err
			}
		}
	case ext4.Symlink:
		_, err = i.Readlink()
	case ext4.Regular:
		var file *ext4.File
		if file, err = i.Open(); err == nil {
			_, err = io.Copy(io.Discard, file)
		}
	}
	return err
}

// TestRefused: what is not read is refused by name, and what is damaged by its inode; the rest of the
// image reads on.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, path, made, command string
		kind                      error
		said                      string
	}{
		{"encrypted-file", "/file", "", "sif /file flags 0x80800", ext4.ErrUnsupported, "it is encrypted"},
		{"encrypted-directory", "/dir", "", "sif /dir flags 0x80800", ext4.ErrUnsupported, "it is encrypted"},
		{"encrypted-link", "/link", "", "sif /link flags 0x800", ext4.ErrUnsupported, "it is encrypted"},
		{"casefolded-directory", "/dir", "", "sif /dir flags 0x40080000", ext4.ErrUnsupported, "folds case"},
		{"inode-of-an-attribute", "/file", "", "sif /file flags 0x280000", ext4.ErrUnsupported, "extended attribute"},
		{"wrong-checksum", "/file", "", "sif /file checksum 0x1", ext4.ErrDamaged, "wrong checksum"},
		{"extents-without-magic", "/file", "", "sif /file block[0] 0x1", ext4.ErrDamaged, "no magic number"},
		{"extents-too-deep", "/file", "", "sif /file block[1] 0x60004", ext4.ErrDamaged, "a depth of 6"},
		{"extents-too-many", "/file", "", "sif /file block[0] 0x5f30a", ext4.ErrDamaged, "5 entries of 4"},
		{"extents-outside", "/file", "", "sif /file block[5] 0x1ff0", ext4.ErrDamaged, "lie outside"},
		{"size-too-large", "/file", "", "sif /file size 0x7fffffffffff", ext4.ErrDamaged, "a size of"},
		{"size-negative", "/file", "", "sif /file size 0x8000000000000000", ext4.ErrDamaged, "a size of"},
		{"directory-too-large", "/dir", "", "sif /dir size 0x40000000", ext4.ErrDamaged, "a directory of"},
		{"directory-with-a-hole", "/dir", "", "sif /dir size 0x1000", ext4.ErrDamaged, "a hole"},
		{"directory-of-a-part", "/dir", "", "sif /dir size 0x3ff", ext4.ErrDamaged, "a directory of"},
		{"link-too-long", "/link", "", "sif /link size 0x10000", ext4.ErrDamaged, "a target of"},
		{"link-to-nothing", "/link", "", "sif /link size 0", ext4.ErrDamaged, "a target of 0 bytes"},
		{"link-with-nul", "/link", "", "sif /link size 20", ext4.ErrDamaged, "NUL"},
		{"attributes-outside", "/file", "", "sif /file file_acl 0x7fffffff", ext4.ErrDamaged, "attributes are in block"},
		{"further-fields", "/file", "^metadata_csum", "sif /file extra_isize 0x1f0", ext4.ErrDamaged, "further fields"},
		{"map-outside", "/file", "^extents,^64bit,^metadata_csum", "sif /file block[3] 0x7fffffff", ext4.ErrDamaged, "lie outside"},
		{"map-of-maps-outside", "/file", "^extents,^64bit,^metadata_csum", "sif /file block[IND] 0x7fffffff", ext4.ErrDamaged, "lie outside"},
		{"inline-without-the-feature", "/file", "", "sif /file flags 0x10080000", ext4.ErrDamaged, "does not have"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			image := plain(t, "-O", tt.made)
			f := openImage(t, image)
			if err := all(f, tt.path); err != nil {
				t.Fatalf("before it was changed: %v", err)
			}
			i, err := f.Walk(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			debugfs(t, image, tt.command)
			f = openImage(t, image)
			err = all(f, tt.path)
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.said) || !strings.HasPrefix(err.Error(), fmt.Sprintf("inode %d: ", i.Number)) {
				t.Errorf("the error is %v, want %q of inode %d", err, tt.said, i.Number)
			}
			if err := all(f, "/"); err != nil {
				t.Errorf("the directory above: %v", err)
			}
		})
	}
}

// TestRefusedFileSystems: so are features of the whole, and superblocks that lie.
func TestRefusedFileSystems(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		kind          error
		said          string
	}{
		{"compression", "ssv feature_incompat 0x2c3", ext4.ErrUnsupported, "feature compression"},
		{"dirdata", "ssv feature_incompat 0x12c2", ext4.ErrUnsupported, "feature dirdata"},
		{"unknown", "ssv feature_incompat 0x1002c2", ext4.ErrUnsupported, "feature incompat bit 0x100000"},
		{"a-journal", "ssv feature_incompat 0x2ca", ext4.ErrUnsupported, "the journal of another"},
		{"external-journal", "ssv feature_incompat 0x2c6\nssv journal_inum 0\nssv journal_dev 0x801", ext4.ErrUnsupported, "its journal is on another device"},
		{"longer-than-the-image", "ssv blocks_count 0x3fff", ext4.ErrDamaged, "inodes in"},
		{"no-inodes", "ssv inodes_per_group 0", ext4.ErrDamaged, "groups of 0 inodes"},
		{"odd-inodes", "ssv inode_size 300", ext4.ErrDamaged, "inodes of 300 bytes"},
		{"large-blocks", "ssv log_block_size 7", ext4.ErrDamaged, "blocks of 2^7 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			image := plain(t, "-O", "^metadata_csum")
			openImage(t, image)
			debugfs(t, image, strings.Split(tt.command, "\n")...)
			f, err := os.Open(image)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			_, err = ext4.Open(f, 8<<20)
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.said) {
				t.Errorf("the error is %v, want %q", err, tt.said)
			}
		})
	}
	t.Run("cut-off", func(t *testing.T) {
		f, err := os.Open(plain(t))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, size := range []int64{0, 6, 1024, 2047, 2048, 4 << 20, 8<<20 - 1} {
			if _, err := ext4.Open(io.NewSectionReader(f, 0, size), size); !errors.Is(err, ext4.ErrDamaged) {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if _, err := ext4.Open(f, 8<<20); err != nil {
			t.Errorf("all of it: %v", err)
		}
	})
}

// TestChecksums: a byte that changed is noticed wherever there is a checksum, and the inode is named.
func TestChecksums(t *testing.T) {
	image := plain(t)
	f := openImage(t, image)
	for _, tt := range []struct {
		name, path string
		at         func(i *ext4.Inode) int64
		said       string
	}{
		{"superblock", "/", func(*ext4.Inode) int64 { return 1024 + 0x78 }, "superblock"},
		{"group", "/", func(*ext4.Inode) int64 { return 2048 + 4 }, "descriptor of group 0"},
		{"inode", "/file", func(i *ext4.Inode) int64 { at, _ := f.InodeOffset(i.Number); return at + 0x10 }, "it has a wrong checksum"},
		{"directory", "/dir", func(i *ext4.Inode) int64 {
			for e := range i.Extents() {
				return int64(e.Physical)*1024 + 40
			}
			return 0
		}, "block 0 of the directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i, err := f.Walk(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			raw[tt.at(i)] ^= 1
			changed := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(changed, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := os.Open(changed)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := ext4.Open(r, int64(len(raw)))
			if err == nil {
				err = all(got, tt.path)
			}
			if !errors.Is(err, ext4.ErrDamaged) || !strings.Contains(err.Error(), tt.said) {
				t.Errorf("the error is %v, want %q", err, tt.said)
			}
		})
	}
}

// TestLargeAttributes: an attribute whose value is an inode of its own is refused where it is asked
// for, and nothing else is.
func TestLargeAttributes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	image := filepath.Join(t.TempDir(), "image")
	mke2fs(t, image, "16m", "-t", "ext4", "-b", "4096", "-O", "ea_inode")
	m := mount(t, image, "")
	if m == nil {
		t.Fatal("it can't be mounted")
	}
	file := filepath.Join(m.root, "file")
	err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), unix.Setxattr(file, "user.small", []byte("small"), 0),
		unix.Setxattr(file, "user.large", make([]byte, 30_000), 0))
	m.Close()
	if err != nil {
		t.Fatal(err)
	}
	i, err := openImage(t, image).Walk("/file")
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, err := i.Xattr("user.small"); string(v) != "small" || !ok || err != nil {
		t.Errorf("the small one is %q, %v, %v", v, ok, err)
	}
	if _, ok, err := i.Xattr("user.large"); ok || !errors.Is(err, ext4.ErrUnsupported) {
		t.Errorf("the large one: %v, %v", ok, err)
	}
	if _, ok, err := i.Xattr("user.none"); ok || err != nil {
		t.Errorf("one that is not there: %v, %v", ok, err)
	}
}

func TestWalkPaths(t *testing.T) {
	f := openImage(t, plain(t))
	for _, tt := range []struct {
		path string
		kind error
	}{
		{"/dir/inner", nil},
		{"dir/../dir/./inner", nil},
		{"/../../file", nil},
		{"/link", nil},
		{"/link/", nil},
		{"/missing", fs.ErrNotExist},
		{"/dir/missing/x", fs.ErrNotExist},
		{"/file/x", ext4.ErrNotDirectory},
		{"/file/..", ext4.ErrNotDirectory},
		{strings.Repeat("/", 100_000), fs.ErrInvalid},
	} {
		if _, err := f.Walk(tt.path); !errors.Is(err, tt.kind) {
			t.Errorf("%.40q: %v, want %v", tt.path, err, tt.kind)
		}
	}
	if i, err := f.Walk("/link"); err != nil || i.Type() != ext4.Symlink {
		t.Errorf("a link at the end is %v, %v", i, err)
	}
	if i, err := f.Walk("/link/"); err != nil || i.Type() != ext4.Regular {
		t.Errorf("a link with a slash behind it is %v, %v", i, err)
	}
}
