package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // a bytes.Buffer takes all
	_ = w.Close()
	return b.Bytes()
}

func zst(data []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// flip returns b with a bit of byte i changed, counted from the end if below
// zero.
func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	if i < 0 {
		i += len(b)
	}
	b[i] ^= 1
	return b
}

func TestCompressions(t *testing.T) {
	data := archive(file("a", strings.Repeat("content ", 100_000)), file("b", "2"))
	half := len(data) / 2
	skippable := []byte{0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}
	plain, err := unpack(t, t.TempDir(), data, layer.Options{})
	must(t, err)
	for _, tt := range []struct {
		name string
		data []byte
	}{
		{"gzip", gz(data)},
		{"gzip-members", join(gz(nil), gz(data[:half]), gz(data[half:]), gz(nil))},
		{"zstd", zst(data)},
		{"zstd-frames", join(skippable, zst(data[:half]), skippable, zst(data[half:]), skippable)},
		{"one-zero-block", data[:len(data)-512]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			res, err := layer.Unpack(t.Context(), iotest.OneByteReader(bytes.NewReader(tt.data)), root, layer.Options{})
			must(t, err)
			if tt.name != "one-zero-block" && res.DiffID != plain.DiffID {
				t.Errorf("DiffID %s, want %s as of the plain archive", res.DiffID, plain.DiffID)
			}
			if b, err := os.ReadFile(root + "/a"); err != nil || len(b) != 800_000 {
				t.Errorf("a: %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	data := archive(file("a", "1"))
	zeros := make([]byte, 32<<20)
	bomb := archive(file("zeros", string(zeros)))
	small := layer.Limits{Ratio: 100, RatioFrom: 1 << 20}
	tests := []struct {
		name   string
		data   []byte
		want   string
		benign []byte
		limits layer.Limits
	}{
		{name: "empty", data: nil, want: "layer: it is empty", benign: make([]byte, 1024)},
		{name: "empty-gzip", data: gz(nil), want: "layer: the archive is cut off: it has no end mark", benign: gz(make([]byte, 1024))},
		{name: "no-tar", data: []byte("hello"), want: "layer: it is no tar, nor one compressed with gzip or zstd", benign: data},
		{name: "no-long-tar", data: bytes.Repeat([]byte("hello"), 1000), want: "layer: it is no tar, nor one compressed with gzip or zstd", benign: data},
		{name: "twice-gzip", data: gz(gz(data)), want: "layer: it is no tar, nor one compressed with gzip or zstd", benign: gz(data)},
		{name: "xz", data: []byte("\xfd7zXZ\x00etc"), want: "layer: it is compressed with xz; compress it with gzip or zstd", benign: gz(data)},
		{name: "bzip2", data: []byte("BZh9etc"), want: "layer: it is compressed with bzip2; compress it with gzip or zstd", benign: gz(data)},
		{name: "gzip-header", data: gz(data)[:5], want: "layer: its gzip header is damaged or cut off", benign: gz(data)},
		{name: "gzip-cut", data: gz(data)[:50], want: "layer: its gzip stream is cut off", benign: gz(data)},
		{name: "gzip-checksum", data: flip(gz(data), -8), want: "layer: its gzip checksum is wrong", benign: gz(data)},
		{name: "gzip-tail", data: join(gz(data), []byte("something else")), want: "layer: something that is no gzip follows its gzip stream", benign: join(gz(data), gz(nil))},
		{name: "zstd-cut", data: zst(data)[:20], want: "layer: its zstd stream is cut off", benign: zst(data)},
		{name: "zstd-checksum", data: flip(zst(data), -1), want: "layer: its zstd checksum is wrong", benign: zst(data)},
		{name: "zstd-tail", data: join(zst(data), []byte("something else")), want: "layer: something that is no zstd follows its zstd stream", benign: join(zst(data), zst(nil))},
		{name: "zstd-window", data: []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0, 1, 0, 0}, want: "layer: its zstd stream needs a window of more than 134217728 bytes", benign: zst(data)},
		{name: "zstd-dictionary", data: []byte{0x28, 0xb5, 0x2f, 0xfd, 1, 0, 7, 1, 0, 0}, want: "layer: its zstd stream needs a dictionary", benign: zst(data)},
		{name: "no-end-mark", data: data[:len(data)-1024], want: "layer: the archive is cut off: it has no end mark", benign: data},
		{name: "half-an-end-mark", data: data[:len(data)-1024+511], want: "layer: the archive is cut off in the middle", benign: data},
		{name: "cut-in-contents", data: archive(file("a", "1234"))[:1538], want: `layer entry "a": the archive is cut off in the middle`, benign: data},
		{name: "cut-in-padding", data: archive(file("a", "1234"))[:1600], want: "layer: the archive is cut off: it has no end mark", benign: data},
		{name: "tail", data: join(data, data), want: "layer: something other than zeros follows the archive", benign: join(data, make([]byte, 10_000))},
		{name: "header-checksum", data: join(file("a", "1"), flip(data, 148)), want: "layer: the archive is damaged: the header before byte 2560 makes no sense", benign: join(file("a", "1"), data)},
		{name: "first-header", data: flip(data, 0), want: "layer: it is no tar, nor one compressed with gzip or zstd", benign: data},
		{name: "gzip-bomb", data: gz(bomb), want: "layer: it is a compression bomb", benign: gz(archive(file("zeros", string(zeros[:1<<19])))), limits: small},
		{name: "zstd-bomb", data: zst(bomb), want: "layer: it is a compression bomb", benign: zst(archive(file("zeros", string(zeros[:1<<19])))), limits: small},
		{name: "bomb-behind-the-end", data: gz(join(data, zeros)), want: "layer: it is a compression bomb", benign: gz(join(data, zeros[:1<<19])), limits: small},
		{name: "bomb-of-headers", data: gz(join(bytes.Repeat(pax("a=b"), 10_000), data)), want: "layer: it is a compression bomb", benign: gz(join(bytes.Repeat(pax("a=b"), 100), data)), limits: small},
		{name: "large", data: gz(bomb), want: `layer entry "zeros": with its 33554432 bytes the layer's files take more than 1048576`, benign: gz(archive(file("zeros", string(zeros[:1<<19])))), limits: layer.Limits{Bytes: 1 << 20}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := unpack(t, t.TempDir(), tt.data, layer.Options{Limits: tt.limits})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("Unpack = %v\nwant     %s", err, tt.want)
			}
			if _, err := unpack(t, t.TempDir(), tt.benign, layer.Options{Limits: tt.limits}); err != nil {
				t.Errorf("benign: Unpack = %v", err)
			}
		})
	}
}

// A layer that is cut off anywhere is never taken for a whole one.
func TestCutAnywhere(t *testing.T) {
	data := archive(dir("d"), file("d/a", "12"), symlink("l", "d"))
	for _, tt := range []struct {
		name string
		data []byte
		also int // bytes that are enough: one block of the end mark's two
	}{{"tar", data, len(data) - 512}, {"gzip", gz(data), -1}, {"zstd", zst(data), -1}} {
		for n := 0; n <= len(tt.data); n++ {
			if tt.name == "tar" && n%512 != 0 && n%11 != 0 {
				continue // there are many, and much alike
			}
			_, err := unpack(t, t.TempDir(), tt.data[:n], layer.Options{})
			whole := n == len(tt.data) || n == tt.also
			if (err == nil) != whole {
				t.Errorf("%s: %d of %d bytes: %v", tt.name, n, len(tt.data), err)
			}
		}
	}
}

// What goes wrong with the reader is not the layer's fault.
func TestReadErrors(t *testing.T) {
	lost := errors.New("connection lost")
	data := archive(file("a", strings.Repeat("1", 600_000)))
	for _, b := range [][]byte{nil, data[:100], data[:1000], data[:500_000], gz(data)[:5], gz(data)[:200], zst(data)[:20]} {
		for _, cause := range []error{lost, io.ErrUnexpectedEOF} {
			r := io.MultiReader(bytes.NewReader(b), iotest.ErrReader(cause))
			_, err := layer.Unpack(t.Context(), r, t.TempDir(), layer.Options{})
			if !errors.Is(err, cause) || sandbox.KindOf(err) == sandbox.Invalid {
				t.Errorf("after %d bytes: Unpack = %v, want %v", len(b), err, cause)
			}
		}
	}
}

// endless is an archive without an end.
type endless struct {
	entry []byte
	left  []byte
	seen  int
	after func(entries int)
}

func (e *endless) Read(b []byte) (int, error) {
	if len(e.left) == 0 {
		e.seen++
		e.after(e.seen)
		e.left = e.entry
	}
	n := copy(b, e.left)
	e.left = e.left[n:]
	return n, nil
}

func TestCancel(t *testing.T) {
	over := errors.New("that is enough")
	for name, entry := range map[string]block{"entries": file("a", "1"), "headers": pax("a=b")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &endless{entry: entry, after: func(n int) {
			if n == 2000 {
				cancel(over)
			}
		}}
		if _, err := layer.Unpack(ctx, r, t.TempDir(), layer.Options{}); !errors.Is(err, over) {
			t.Errorf("%s: Unpack = %v, want %v", name, err, over)
		}
	}
}

func TestFullDisk(t *testing.T) {
	privateMounts(t)
	for _, tt := range []struct {
		size string
		want sandbox.Kind
	}{{"64k", sandbox.Exhausted}, {"16m", ""}} {
		root := t.TempDir()
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size="+tt.size); err != nil {
			t.Skipf("mount: %v", err)
		}
		_, err := unpack(t, root, archive(file("a", strings.Repeat("1", 1<<20))), layer.Options{})
		if got := sandbox.KindOf(err); got != tt.want {
			t.Errorf("%s: Unpack = %v (%s), want %q", tt.size, err, got, tt.want)
		}
		must(t, unix.Unmount(root, unix.MNT_DETACH))
	}
}

// A file system without what a layer needs is told apart from a bad layer.
func TestFileSystemWithoutMarks(t *testing.T) {
	privateMounts(t)
	root := t.TempDir()
	if err := unix.Mount("ramfs", root, "ramfs", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
	for _, d := range []string{"opaque", "xattr"} {
		must(t, os.Mkdir(root+"/"+d, 0o755))
	}
	_, err := unpack(t, root+"/opaque", archive(file(".wh..wh..opq", "")), layer.Options{})
	if sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("Unpack = %v, want it unsupported", err)
	}
	res, err := unpack(t, root+"/xattr", archive(withXattr("f", "user.x", "1")), layer.Options{})
	if err != nil || len(res.Notes) != 1 {
		t.Errorf("Unpack = %v, %v, want a note", res.Notes, err)
	}
}

// Twice the same header record: the later counts, as with every reader.
func TestHeaderTwice(t *testing.T) {
	root := t.TempDir()
	_, err := unpack(t, root, archive(pax("path=first"), pax("path=second"), header(tar.TypeReg, "f", "", "")), layer.Options{})
	must(t, err)
	if _, err := os.Lstat(root + "/second"); err != nil {
		t.Error(err)
	}
}
