package scrub_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
)

// FuzzStructures overwrites a piece of an image: whatever its structures say then, they lead
// nowhere outside of it, and to an end.
func FuzzStructures(f *testing.F) {
	packed, err := os.Open(filepath.Join("testdata", "small.ext4.gz"))
	if err != nil {
		f.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(1024+0x18), []byte{7})                   // blocks of 128 KiB
	f.Add(uint32(1024+0x58), []byte{0xFF, 0xFF})          // inodes of 65535 bytes
	f.Add(uint32(2048+8), []byte{0xFF, 0xFF, 0xFF, 0xFF}) // a table of inodes behind the end
	f.Fuzz(func(t *testing.T, at uint32, piece []byte) {
		b := append([]byte(nil), whole...)
		copy(b[int(at)%len(b):], piece)
		image, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		if _, err := image.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = scrub.OnCopy(t.Context(), image)
		if fi, err := image.Stat(); err != nil || fi.Size() != int64(len(b)) {
			t.Errorf("it has %d bytes, want %d (%v)", fi.Size(), len(b), err)
		}
	})
}
