package pack_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

var limits = pack.Limits{Bytes: 1 << 20, Objects: 1000, Object: 1 << 16, Meta: 1 << 14, Unpacked: 1 << 20, Depth: 50}

// realPack is a pack of git's, with deltas, and its index.
func realPack(t testing.TB, format string) (packed, index []byte) {
	t.Helper()
	dir := t.TempDir()
	git := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	git("", "init", "-q", "--object-format="+format)
	for i := range 20 {
		text := strings.Repeat("a line that is long enough to be a delta's\n", 40+i)
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git("", "add", "f")
		git("", "commit", "-q", "-m", "x")
	}
	git("HEAD\n", "pack-objects", "-q", "--revs", "--delta-base-offset", "p")
	read := func(glob string) []byte {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, glob))
		if err != nil || len(names) != 1 {
			t.Fatal(names, err)
		}
		b, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return read("p-*.pack"), read("p-*.idx")
}

// TestScan: what git packs passes to the byte, and so does its index, of that pack alone.
func TestScan(t *testing.T) {
	for _, format := range []pack.Format{pack.SHA1, pack.SHA256} {
		packed, index := realPack(t, string(format))
		var out bytes.Buffer
		p, err := pack.Scan(bytes.NewReader(packed), &out, format, limits)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), packed) || p.Bytes != int64(len(packed)) || p.Objects() != 60 {
			t.Errorf("%s: %d bytes of %d, %d objects", format, out.Len(), len(packed), p.Objects())
		}
		if err := p.CheckIndex(bytes.NewReader(index)); err != nil {
			t.Error(err)
		}
		if int64(len(index)) > p.IndexBytes() {
			t.Errorf("an index of %d bytes, and %d was the most", len(index), p.IndexBytes())
		}
		for i := range index { // whatever is changed in it is noticed
			index[i] ^= 1
			if err := p.CheckIndex(bytes.NewReader(index)); err == nil {
				t.Errorf("%s: byte %d of the index may be another", format, i)
			}
			index[i] ^= 1
		}
		if err := p.CheckIndex(bytes.NewReader(append(index, 0))); err == nil {
			t.Error("more follows the index")
		}
	}
}

// TestScanBounds: each limit is one.
func TestScanBounds(t *testing.T) {
	packed, _ := realPack(t, "sha1")
	for says, change := range map[string]func(*pack.Limits){
		"packed they have more than": func(l *pack.Limits) { l.Bytes = 100 },
		"60 of them, where 59":       func(l *pack.Limits) { l.Objects = 59 },
		"a blob of":                  func(l *pack.Limits) { l.Object = 1000 },
		"a commit of":                func(l *pack.Limits) { l.Meta = 10 },
		"unpacked they have more":    func(l *pack.Limits) { l.Unpacked = 4000 },
		"deltas upon deltas":         func(l *pack.Limits) { l.Depth = 0 },
	} {
		l := limits
		change(&l)
		if _, err := pack.Scan(bytes.NewReader(packed), io.Discard, pack.SHA1, l); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// FuzzScan: whatever comes, no more is passed on, kept or unpacked than may be.
func FuzzScan(f *testing.F) {
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"), []byte("\xfftOc\x00\x00\x00\x02"))
	packed, index := realPack(f, "sha1")
	f.Add(packed, index)
	f.Add(packed[:100], index[:100])
	f.Fuzz(func(t *testing.T, packed, index []byte) {
		var out bytes.Buffer
		p, err := pack.Scan(bytes.NewReader(packed), &out, pack.SHA1, limits)
		if !bytes.HasPrefix(packed, out.Bytes()) {
			t.Error("what was passed on is not what came")
		}
		if err != nil {
			return
		}
		if out.Len() != len(packed) || p.Bytes > limits.Bytes || int64(p.Objects()) > limits.Objects || p.Unpacked > limits.Unpacked {
			t.Errorf("%d bytes of %d, %d objects, %d unpacked", out.Len(), len(packed), p.Objects(), p.Unpacked)
		}
		_ = p.CheckIndex(bytes.NewReader(index)) // it may be refused, and must not panic
	})
}
