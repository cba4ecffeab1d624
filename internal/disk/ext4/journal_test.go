package ext4_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
)

// free are blocks of a new image of 16 MiB, with blocks of 1 KiB, that nobody uses.
const free = 12000

// TestJournalWritten: journals that debugfs wrote, with each kind of checksum, are replayed as
// e2fsck does, block by block.
func TestJournalWritten(t *testing.T) {
	for _, tt := range []struct{ name, features, open string }{
		{"plain", "^metadata_csum", "jo"},
		{"plain-32-bit", "^metadata_csum,^64bit", "jo"},
		{"sums-1", "^metadata_csum", "jo -c -v 1"},
		{"sums-2", "metadata_csum", "jo -c -v 2"},
		{"sums-2-32-bit", "metadata_csum,^64bit", "jo -c -v 2"},
		{"sums-3", "metadata_csum", "jo -c -v 3"},
		{"sums-3-32-bit", "metadata_csum,^64bit", "jo -c -v 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			image, checked := filepath.Join(dir, "image"), filepath.Join(dir, "checked")
			mke2fs(t, image, "16m", "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", tt.features)
			journalWrite(t, image, tt.open, []string{
				"jw -b " + numbers(free, 50) + " " + data(t, dir, 50, 1),
				"jw -b " + numbers(free+100, 50) + " " + data(t, dir, 50, 2),
				"jw -r " + numbers(free, 20),
				"jw -r " + numbers(free+110, 10),
				"jw -b " + numbers(free+115, 2) + " " + data(t, dir, 2, 4), // once more, after it was revoked
			})
			copyFile(t, image, checked)
			run(t, "sh", "-c", `e2fsck -y -E journal_only "$1" || [ $? = 1 ]`, "sh", checked)
			sameBlocks(t, openImage(t, image), image, checked)
		})
	}
}

func numbers(first, count int) string {
	var all []string
	for n := range count {
		all = append(all, fmt.Sprint(first+n))
	}
	return strings.Join(all, ",")
}

// data makes a file with blocks of 1 KiB, of which every third has what is to be escaped.
func data(t *testing.T, dir string, blocks, mark int) string {
	t.Helper()
	var b bytes.Buffer
	for n := range blocks {
		block := bytes.Repeat(fmt.Appendf(nil, "mark %d block %d;", mark, n), 100)
		if n%3 == 0 {
			copy(block, "\xc0\x3b\x39\x98")
		}
		b.Write(block[:1024])
	}
	file := filepath.Join(dir, fmt.Sprint("data", mark))
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func journalWrite(t *testing.T, image, open string, commands []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "debugfs", "-w", "-f", "-", image)
	cmd.Stdin = strings.NewReader(open + "\n" + strings.Join(commands, "\n") + "\njc\n")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "while") || strings.Contains(string(out), "sage") {
		t.Fatalf("debugfs: %v: %s", err, out)
	}
}

// sameBlocks compares all blocks with those of a checked image, but the superblock, the first group's
// descriptors and the journal. Of a hundred copies thirty are revoked, and two written again; with
// checksums of kind 1 debugfs writes a wrong one there, which ends the log.
func sameBlocks(t *testing.T, fs *ext4.FS, image, checked string) {
	t.Helper()
	raw, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(checked)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := fs.Inode(fs.Super().JournalInode)
	if err != nil {
		t.Fatal(err)
	}
	skip := map[uint64]bool{0: true, 1: true}
	for e, err := range journal.Extents() {
		if err != nil {
			t.Fatal(err)
		}
		for n := range e.Blocks {
			skip[e.Physical+n] = true
		}
	}
	size, replayed := uint64(fs.Super().BlockSize), 0
	got := make([]byte, size)
	for n := range fs.Super().Blocks {
		if skip[n] {
			continue
		}
		if err := fs.ReadBlock(n, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[n*size:(n+1)*size]) {
			t.Errorf("block %d has %q, and %q once it is checked", n, got[:30], want[n*size:n*size+30])
		}
		if !bytes.Equal(got, raw[n*size:(n+1)*size]) {
			replayed++
		}
	}
	if replayed != 72 && replayed != 100 {
		t.Errorf("%d blocks were replayed, want 72, or 100", replayed)
	}
}

// TestJournalEnds: a transaction that is not whole, or whose commit is damaged, is not replayed; what
// is damaged within a whole one is an error.
func TestJournalEnds(t *testing.T) {
	const last = "mark 2 block 1;"
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	mke2fs(t, image, "16m", "-t", "ext4", "-b", "1024", "-J", "size=1")
	journalWrite(t, image, "jo -c -v 3", []string{
		"jw -b " + numbers(free, 3) + " " + data(t, dir, 3, 1),
		"jw -b " + numbers(free, 3) + " " + data(t, dir, 3, 2),
	})
	whole, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	blockOf := func(what string) int { return bytes.LastIndex(whole, []byte(what)) / 1024 }
	commit := blockOf(last) + 2
	for _, tt := range []struct {
		name  string
		block int // of the image, whose byte at is changed
		at    int
		want  string // in the second free block
		said  string
	}{
		{"whole", 0, 0, last, ""},
		{"no-commit", commit, 0, "mark 1 block 1;", ""},
		{"damaged-commit", commit, 0x34, "mark 1 block 1;", ""},
		{"damaged-copy", blockOf(last), 100, "", "a copy of block 12001 with a wrong checksum"},
		{"damaged-descriptor", commit - 4, 20, "", "a wrong checksum"},
		{"next-sequence", commit - 4, 11, "mark 1 block 1;", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Clone(whole)
			b[tt.block*1024+tt.at] ^= 0x10
			fs, err := ext4.Open(bytes.NewReader(b), int64(len(b)))
			if tt.said != "" {
				if !errors.Is(err, ext4.ErrDamaged) || !strings.Contains(err.Error(), tt.said) || !strings.Contains(err.Error(), "inode 8: ") {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1024)
			if err := fs.ReadBlock(free+1, got); err != nil || !bytes.HasPrefix(got, []byte(tt.want)) {
				t.Errorf("the block has %.20q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// TestFastCommits: where the kernel left fast commits, which are not read, the image is refused. Once
// the kernel replayed them, it is not.
func TestFastCommits(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	dir := t.TempDir()
	image, crashed := filepath.Join(dir, "image"), filepath.Join(dir, "crashed")
	mke2fs(t, image, "48m", "-t", "ext4", "-b", "4096", "-O", "fast_commit")
	m := mount(t, image, patient)
	if m == nil {
		t.Fatal("it can't be mounted")
	}
	for n := range 20 {
		f, err := os.Create(filepath.Join(m.root, fmt.Sprint("f", n)))
		if err == nil {
			_, err = f.WriteString("content")
		}
		if err := errors.Join(err, unix.Fsync(int(f.Fd())), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, image, crashed)
	m.Close()
	f, err := os.Open(crashed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = ext4.Open(f, 48<<20)
	if !errors.Is(err, ext4.ErrUnsupported) || !strings.Contains(err.Error(), "fast commits") {
		t.Errorf("the error is %v", err)
	}
	if m = mount(t, crashed, ""); m == nil {
		t.Fatal("the copy can't be mounted")
	}
	m.Close()
	sameAsKernel(t, crashed, false)
}
