package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// then is when the entries of these tests were modified.
var then = time.Unix(1_600_000_000, 500_000_000)

// block is a part of an archive: a header with what belongs to it.
type block []byte

// archive joins blocks and ends them.
func archive(blocks ...block) []byte {
	return append(bytes.Join(raw(blocks), nil), make([]byte, 1024)...)
}

func raw(blocks []block) [][]byte {
	var all [][]byte
	for _, b := range blocks {
		all = append(all, b)
	}
	return all
}

// entry writes h as package tar does. It can't write every layer that there
// may be; header can.
func entry(h tar.Header, content string) block {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if h.ModTime.IsZero() {
		h.ModTime = then
	}
	h.Format = tar.FormatPAX
	if h.Typeflag == tar.TypeReg {
		h.Size = int64(len(content))
	}
	if err := w.WriteHeader(&h); err != nil {
		panic(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		panic(err)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func file(name, content string) block {
	return entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
}

func dir(name string) block {
	return entry(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, "")
}

func symlink(name, target string) block {
	return entry(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, "")
}

func link(name, target string) block {
	return entry(tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, "")
}

func device(typeflag byte, name string, major, minor int64) block {
	return entry(tar.Header{Typeflag: typeflag, Name: name, Devmajor: major, Devminor: minor, Mode: 0o666}, "")
}

func withXattr(name, attr, value string) block {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
	h.PAXRecords = map[string]string{"SCHILY.xattr." + attr: value}
	return entry(h, "x")
}

// header is a ustar header with fields as they are given, and content.
func header(typeflag byte, name, linkname, content string) block {
	h := make([]byte, 512)
	copy(h[0:100], name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", len(content), then.Unix()))
	h[156] = typeflag
	copy(h[157:257], linkname)
	copy(h[257:], "ustar\x0000")
	return append(sum(h), padded(content)...)
}

// sum sets the checksum of a header.
func sum(h []byte) []byte {
	copy(h[148:156], "        ")
	n := 0
	for _, c := range h {
		n += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", n))
	return h
}

func padded(content string) []byte {
	return append([]byte(content), make([]byte, -len(content)&511)...)
}

// pax is an extended header with records that need not make sense.
func pax(records ...string) block {
	var b strings.Builder
	for _, r := range records {
		n := len(r) + 3
		for n != len(fmt.Sprint(n))+len(r)+2 {
			n = len(fmt.Sprint(n)) + len(r) + 2
		}
		fmt.Fprintf(&b, "%d %s\n", n, r)
	}
	return header('x', "PaxHeaders", "", b.String())
}

func unpack(t testing.TB, dir string, data []byte, o layer.Options) (layer.Result, error) {
	t.Helper()
	return layer.Unpack(context.Background(), bytes.NewReader(data), dir, o)
}

// list describes a tree: a line for each path, sorted.
func list(t testing.TB, root string) []string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		lines = append(lines, rel+" "+describe(t, p, e))
		return nil
	}))
	sort.Strings(lines)
	return lines
}

func describe(t testing.TB, p string, e fs.DirEntry) string {
	var st unix.Stat_t
	must(t, unix.Lstat(p, &st))
	what := fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
	switch e.Type() {
	case 0:
		b, err := os.ReadFile(p)
		must(t, err)
		return fmt.Sprintf("file %s %.40q", what, b)
	case fs.ModeSymlink:
		target, err := os.Readlink(p)
		must(t, err)
		return "-> " + target
	case fs.ModeDir:
		if isOpaque(p) {
			what += " opaque"
		}
		return "dir " + what
	case fs.ModeNamedPipe:
		return "fifo " + what
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 {
		return "whiteout"
	}
	return fmt.Sprintf("device %v", e.Type())
}

func isOpaque(p string) bool {
	var b [2]byte
	for _, attr := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		if n, err := unix.Lgetxattr(p, attr, b[:]); err == nil && string(b[:n]) == "y" {
			return true
		}
	}
	return false
}

// privateMounts gives the test's thread a mount namespace of its own.
func privateMounts(t *testing.T) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}
