package ext4_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/disk"
)

const (
	bigEntries = 100_000
	bigFile    = 1 << 30
	// bigPeak is the most memory that listing so many entries and reading so much takes, in KiB.
	bigPeak = 64 << 10
	// bigImage has the test of memory be the process that is measured, and names its image.
	bigImage = "CARBOY_EXT4_BIG"
)

// makeBig makes an image with a directory /many of bigEntries files, and a file /large. dense fills
// it; otherwise a sixteenth of it is data.
func makeBig(tb testing.TB, image string, dense bool) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("needs root, to mount an image")
	}
	args := []string{"-q", "-F", "-t", "ext4", "-b", "4096", "-N", "120000", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", image, "1500m"}
	if out, err := exec.CommandContext(tb.Context(), "mke2fs", args...).CombinedOutput(); err != nil {
		tb.Fatalf("mke2fs: %v: %s", err, out)
	}
	m := mount(tb, image, "")
	if m == nil {
		tb.Fatal("it can't be mounted")
	}
	defer m.Close()
	if err := os.Mkdir(filepath.Join(m.root, "many"), 0o755); err != nil {
		tb.Fatal(err)
	}
	for n := range bigEntries {
		f, err := os.Create(filepath.Join(m.root, "many", fmt.Sprintf("an-entry-of-many-%06d.txt", n)))
		if err != nil {
			tb.Fatal(err)
		}
		_ = f.Close() // it is empty
	}
	f, err := os.Create(filepath.Join(m.root, "large"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for at := int64(0); at < bigFile; at += int64(len(piece)) {
		if !dense && at>>20%16 != 0 {
			continue
		}
		for n := 0; n < len(piece); n += 512 {
			le.PutUint64(piece[n:], uint64(at)+uint64(n))
		}
		if _, err := f.WriteAt(piece, at); err != nil {
			tb.Fatal(err)
		}
	}
	if err := f.Truncate(bigFile); err != nil {
		tb.Fatal(err)
	}
}

func listBig(tb testing.TB, image string) {
	tb.Helper()
	got, err := disk.List(tb.Context(), image, "/", true)
	if err != nil || len(got) != bigEntries+3 || got[len(got)-1].Path != fmt.Sprintf("/many/an-entry-of-many-%06d.txt", bigEntries-1) {
		tb.Fatalf("%d entries, %v", len(got), err)
	}
}

func readBig(tb testing.TB, image string, to io.Writer) {
	tb.Helper()
	im, err := disk.Open(image)
	if err != nil {
		tb.Fatal(err)
	}
	defer im.Close()
	f, err := im.OpenFile("/large")
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := io.CopyBuffer(struct{ io.Writer }{to}, f, make([]byte, 256<<10)); err != nil || n != bigFile {
		tb.Fatalf("%d bytes, %v", n, err)
	}
}

// TestMemory: listing 100,000 entries and reading 1 GiB take 64 MiB at most, in a process of their
// own without the race detector.
func TestMemory(t *testing.T) {
	if image := os.Getenv(bigImage); image != "" {
		listBig(t, image)
		readBig(t, image, io.Discard)
		status, err := os.ReadFile("/proc/self/status")
		fmt.Printf("%s\n%v\n", status, err)
		return
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	makeBig(t, image, false)
	cmd := exec.CommandContext(t.Context(), build(t, filepath.Join(dir, "test"), "{}"), "-test.run", "^TestMemory$")
	cmd.Env = append(os.Environ(), bigImage+"="+image)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	peak := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(out)
	if peak == nil {
		t.Fatalf("no peak in %s", out)
	}
	kib, err := strconv.Atoi(string(peak[1]))
	if err != nil || kib > bigPeak {
		t.Errorf("it took %d KiB, %v, want %d at most", kib, err, bigPeak)
	}
	t.Logf("peak: %d KiB", kib)
}

// BenchmarkAgainstDebugfs reports how long ours takes, and how many times as long as debugfs.
func BenchmarkAgainstDebugfs(b *testing.B) {
	dir := b.TempDir()
	image, out := filepath.Join(dir, "image"), filepath.Join(dir, "out")
	makeBig(b, image, true)
	debugfs := func(b *testing.B, command string) {
		if out, err := exec.CommandContext(b.Context(), "debugfs", "-R", command, image).Output(); err != nil {
			b.Fatalf("debugfs: %v: %s", err, out)
		}
	}
	dump := func(b *testing.B) {
		f, err := os.Create(out)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		readBig(b, image, f)
	}
	for _, bb := range []struct {
		name, command string
		ours          func(*testing.B)
	}{
		{"list-100000", "ls -p /many", func(b *testing.B) { listBig(b, image) }},
		{"read-1GiB", "dump /large " + out, dump},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var ours, theirs time.Duration
			for b.Loop() {
				start := time.Now()
				bb.ours(b)
				ours += time.Since(start)
				_ = os.Remove(out) // each writes a new file
				start = time.Now()
				debugfs(b, bb.command)
				theirs += time.Since(start)
				_ = os.Remove(out) // likewise
			}
			b.ReportMetric(ours.Seconds()/float64(b.N), "ours-s/op")
			b.ReportMetric(theirs.Seconds()/float64(b.N), "debugfs-s/op")
			b.ReportMetric(ours.Seconds()/theirs.Seconds(), "ratio")
		})
	}
}
