package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packed is a tar, whose members are "name", "name/", "name>target" or
// "name=target" for a hard link.
func packed(t testing.TB, members ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m, Mode: 0o4755, Size: 1}
		if name, target, ok := strings.Cut(m, ">"); ok {
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
		} else if name, target, ok := strings.Cut(m, "="); ok {
			h = &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
		} else if strings.HasSuffix(m, "/") {
			h = &tar.Header{Typeflag: tar.TypeDir, Name: m, Mode: 0o755}
		} else if strings.HasPrefix(m, "!") {
			h = &tar.Header{Typeflag: tar.TypeChar, Name: m[1:]}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("x"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// through has a plot look at an archive and rewrite it, and returns the names.
func through(t testing.TB, p *plot, data []byte) ([]string, error) {
	t.Helper()
	if err := p.look(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	if p.single && p.name == "" {
		t.Fatal("a file without a name")
	}
	var out bytes.Buffer
	if err := p.rewrite(bytes.NewReader(data), &out); err != nil {
		return nil, err
	}
	var names []string
	for tr := tar.NewReader(&out); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode&^0o777 != 0 {
			t.Errorf("%s: mode %o", h.Name, h.Mode)
		}
		names = append(names, h.Name)
	}
}

func TestCopy(t *testing.T) {
	tests := []struct {
		name, src string
		members   []string
		want      []string
		fails     string
	}{
		{name: "file", src: "a.txt", members: []string{"a.txt"}, want: []string{"a.txt"}},
		{name: "directory", src: "app", members: []string{"app/", "app/x", "app/sub/", "app/sub/y"}, want: []string{"x", "sub", "sub/y"}},
		{name: "all", src: ".", members: []string{"x", "sub/y"}, want: []string{"x", "sub/y"}},
		{name: "pattern", src: "app/*.txt", members: []string{"app/a.txt", "app/b.txt"}, want: []string{"a.txt", "b.txt"}},
		{name: "beside", src: "app", members: []string{"app/x", "apple", "other"}, want: []string{"x"}},
		{name: "links", src: "app", members: []string{"app/x", "app/l>/etc/passwd", "app/h=app/x"}, want: []string{"x", "l", "h"}},
		{name: "missing", src: "app", members: []string{"other"}, fails: "does not hold"},
		{name: "absolute", src: ".", members: []string{"/etc/passwd"}, fails: "not a name below"},
		{name: "up", src: "app", members: []string{"app/x", "app/../../etc/passwd"}, fails: "goes up"},
		{name: "device", src: ".", members: []string{"!null"}, fails: "neither file"},
		{name: "hard-link-out", src: "app", members: []string{"app/x", "app/h=secret"}, fails: "hard link to what is not copied"},
		{name: "hard-link-up", src: ".", members: []string{"x", "h=../x"}, fails: "hard link to what is not copied"},
		{name: "below-a-file", src: "a", members: []string{"a", "a/b"}, fails: "below a file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := through(t, &plot{src: sourceBase(tt.src), mode: -1, most: 1 << 20}, packed(t, tt.members...))
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v, %v; want %q", got, err, tt.fails)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// What unpacks to more than may be is refused, however small it comes.
func TestCopyBomb(t *testing.T) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	const size = 8 << 20
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "zeros", Size: size, Typeflag: tar.TypeReg}), fillZeros(w, size), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := through(t, &plot{src: ".", mode: -1, most: 1 << 20}, buf.Bytes()); err == nil {
		t.Errorf("%d bytes of %d that unpack to %d were taken", buf.Len(), 1<<20, size)
	}
	if _, err := through(t, &plot{src: ".", mode: -1, most: 2 * size}, buf.Bytes()); err != nil {
		t.Errorf("within the bound: %v", err)
	}
}

func fillZeros(w io.Writer, n int) error {
	_, err := w.Write(make([]byte, n))
	return err
}

func FuzzCopy(f *testing.F) {
	f.Add("app", packed(f, "app/", "app/x", "app/l>../../x"))
	f.Add(".", packed(f, "a", "b=a"))
	f.Add("a*", []byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, src string, data []byte) {
		names, err := through(t, &plot{src: sourceBase(src), mode: 0o600, most: 1 << 16}, data)
		if err != nil {
			return
		}
		for _, n := range names {
			if n == "" || strings.HasPrefix(n, "/") || n == ".." || strings.HasPrefix(n, "../") || strings.Contains(n, "/../") || strings.HasSuffix(n, "/..") {
				t.Errorf("%q of %q leads out", n, src)
			}
		}
	})
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"a", "a:b", "o/a:b.c", "A/../b", ":", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		again := r.Name
		if r.Namespace != "" {
			again = r.Namespace + "/" + again
		}
		if r.Tag != "" {
			again += ":" + r.Tag
		}
		if got, err := ParseRef(again); err != nil || got != r {
			t.Errorf("%q: %+v, and again %+v, %v", s, r, got, err)
		}
	})
}
