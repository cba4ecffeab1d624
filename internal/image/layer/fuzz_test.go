package layer_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// FuzzUnpack holds whatever is unpacked to what no layer may do: make
// something elsewhere, a set-id file, a device but a whiteout, or a mark of
// overlayfs but the opaque one.
func FuzzUnpack(f *testing.F) {
	needRoot(f)
	for _, tt := range hostile {
		if data := archive(tt.layer...); len(data) < 1<<13 {
			f.Add(data)
		}
		if data := archive(tt.benign...); len(data) < 1<<13 {
			f.Add(data)
			f.Add(gz(data))
			f.Add(zst(data))
		}
	}
	for _, tt := range merged {
		f.Add(archive(tt.layers[len(tt.layers)-1]...))
	}
	base, lower := f.TempDir(), f.TempDir()
	_, err := unpack(f, lower, archive(dirOf("d/e", 0o700, 1, 1), file("d/f", "1"), symlink("l", "d"), symlink("a", "/../d/e"),
		symlink("out", "../../../../tmp"), symlink("bin", "usr/bin"), symlink("b", "b"), withXattr("x", "user.x", "1"), file("o/.wh..wh..opq", "")), layer.Options{})
	must(f, err)
	below := list(f, lower)
	f.Fuzz(func(t *testing.T, data []byte) {
		outer, err := os.MkdirTemp(base, "") // t.TempDir is named after the test, and slow
		must(t, err)
		defer os.RemoveAll(outer)
		must(t, os.MkdirAll(outer+"/root", 0o755))
		must(t, os.WriteFile(outer+"/secret", []byte("s"), 0o600))
		before := outside(t, outer)
		res, err := layer.Unpack(context.Background(), bytes.NewReader(summed(data)), outer+"/root", layer.Options{
			Limits: layer.Limits{Bytes: 1 << 20, Entries: 100, Steps: 10_000, RatioFrom: 1 << 16}, Below: []string{lower},
		})
		if err != nil && sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Unpack = %v, want it invalid", err)
		}
		if err == nil && (len(res.DiffID) != 71 || res.Bytes > 1<<20 || res.Entries > 100) {
			t.Errorf("Result = %+v", res)
		}
		// The tree may be a part of one; it must be as tame.
		if d := cmp.Diff(before, outside(t, outer)); d != "" {
			t.Errorf("something was made outside:\n%s", d)
		}
		if d := cmp.Diff(below, list(t, lower)); d != "" {
			t.Errorf("the layer below was changed:\n%s", d)
		}
		for _, problem := range untame(t, outer+"/root") {
			t.Error(problem)
		}
	})
}

// summed returns data with the checksums of what look like headers made right,
// or hardly a change would get past the first.
func summed(data []byte) []byte {
	data = bytes.Clone(data)
	for b := data; len(b) >= 512; b = b[512:] {
		if bytes.HasPrefix(b[257:], []byte("ustar")) {
			sum(b[:512])
		}
	}
	return data
}

// untame lists what no layer may leave below root.
func untame(t testing.TB, root string) (problems []string) {
	must(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		if st.Mode&0o6000 != 0 || st.Uid > 65535 || st.Gid > 65535 {
			problems = append(problems, fmt.Sprintf("%q has mode %o and owner %d:%d", p, st.Mode, st.Uid, st.Gid))
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFBLK, unix.S_IFSOCK, unix.S_IFCHR:
			if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
				problems = append(problems, fmt.Sprintf("%q is %s %d", p, e.Type(), st.Rdev))
			}
		}
		buf := make([]byte, 1<<16)
		n, err := unix.Llistxattr(p, buf)
		if err != nil {
			return nil // a file system without
		}
		for attr := range strings.SplitSeq(string(buf[:n]), "\x00") {
			user := strings.HasPrefix(attr, "user.") && !strings.Contains(attr, ".overlay.")
			if attr != "" && attr != "trusted.overlay.opaque" && !user {
				problems = append(problems, fmt.Sprintf("%q has %q", p, attr))
			}
		}
		return nil
	}))
	return problems
}

// The control of the fuzz test: what it looks for, it would find.
func TestUntame(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for _, name := range []string{"set-id", "owner", "mark", "fine"} {
		must(t, os.WriteFile(root+"/"+name, nil, 0o644))
	}
	must(t, unix.Chmod(root+"/set-id", 0o4755))
	must(t, unix.Chown(root+"/owner", 70000, 0))
	must(t, unix.Setxattr(root+"/mark", "trusted.overlay.redirect", []byte("/"), 0))
	must(t, unix.Setxattr(root+"/fine", "user.x", []byte("/"), 0))
	must(t, unix.Mknod(root+"/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(root+"/whiteout", unix.S_IFCHR, 0))
	if got := untame(t, root); len(got) != 4 {
		t.Errorf("found %d problems of 4: %q", len(got), got)
	}
}
