package workspace_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// hostileNames are what a random stream is made of: most are legal in one
// place and not in another.
var hostileNames = []string{
	"a", "b", "a/b", "a/b/c", "l", "l/x", "l/x/y", "..", "../outside", "../outside/f", "a/../../outside/f", "/outside", ".", "./a",
	"a//b", ".git/config", "k", "k/f", "out", "out/f", "a/l", "a/l/f", "\xff", "a\x00b", "z",
}

var hostileTargets = []string{"a", "..", "../outside", "/", "l", "a/../..", ".", "k", "../base"}

// legalNames are names in a stream's order, over a base that has links in
// their way.
var legalNames = []string{
	"a", "a/b", "a/b/c", "a/l", "a/l/f", "b", "k", "k/f", "k/outside", "k/outside/f", "l", "l/f", "l/x", "l/x/y", "out", "out/tmp", "out/tmp/f", "z",
}

// legalStream makes a stream that the reader takes: each byte says what is at
// the next of legalNames.
func legalStream(t *testing.T, in []byte) []byte {
	entries := []rawEntry{header()}
	dirs := map[string]bool{".": true}
	for i, name := range legalNames {
		if i == len(in) {
			break
		}
		if !dirs[filepath.Dir(name)] {
			continue
		}
		switch in[i] % 6 {
		case 0:
			entries = append(entries, with(file(name, "evil"), "digest", evilDigest()))
		case 1, 2:
			e := dir(name)
			if in[i]&64 != 0 {
				e = with(e, "opaque", "1")
			}
			entries, dirs[name] = append(entries, e), true
		case 3:
			entries = append(entries, link(name, hostileTargets[int(in[i]/6)%len(hostileTargets)]))
		case 4:
			entries = append(entries, rawEntry{name: name, rec: rec("kind", "deleted")})
		}
	}
	return raw(t, append(entries, end(itoa(len(entries)-1)))...)
}

// hostileStream makes a stream of any bytes, which the reader mostly refuses.
func hostileStream(in []byte) []byte {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	add := func(e rawEntry) {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		err := tw.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body)), Format: tar.FormatPAX, PAXRecords: e.rec})
		if err == nil {
			io.WriteString(tw, e.body)
		}
	}
	add(header())
	n := 0
	for ; len(in) >= 3; in = in[3:] {
		name := hostileNames[int(in[1])%len(hostileNames)]
		switch in[0] % 8 {
		case 0, 1:
			add(with(file(name, "evil"), "digest", evilDigest()))
		case 2, 3:
			e := dir(name)
			if in[2]%2 == 1 {
				e = with(e, "opaque", "1")
			}
			add(e)
		case 4, 5:
			add(link(name, hostileTargets[int(in[2])%len(hostileTargets)]))
		case 6:
			add(rawEntry{name: name, rec: rec("kind", "deleted")})
		case 7:
			add(rawEntry{name: name, rec: rec("kind", "special", "detail", "fifo")})
		}
		n++
	}
	add(end(itoa(n)))
	tw.Close()
	return b.Bytes()
}

var evilDigest = sync.OnceValue(func() string { return digestOf("evil") })

// digestOf asks the producer for a content's digest.
func digestOf(content string) string {
	dir, err := os.MkdirTemp("", "carboy-digest")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
		panic(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		panic(err)
	}
	defer d.Close()
	var b bytes.Buffer
	if err := workspace.WriteChanges(context.Background(), &b, workspace.OverlayUpper(d, nil, nil), options(false, past)); err != nil {
		panic(err)
	}
	for c := range workspace.Read(&b) {
		return c.Digest.String()
	}
	panic("no change")
}

// Whatever a stream says and a user allows, nothing outside the base changes.
func FuzzApply(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 2, 0, 4, 4, 2})
	f.Add([]byte{4, 4, 2, 6, 16, 0})
	f.Add([]byte{2, 4, 1, 0, 5, 0})
	f.Add([]byte{2, 0, 1, 4, 20, 2, 0, 24, 0})
	f.Add([]byte{0, 1, 0, 5, 5, 5, 5, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0})
	f.Add([]byte{0, 65, 5, 5, 5, 5, 5, 4, 5, 5, 5, 65, 4, 5, 5, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 60 {
			in = in[:60]
		}
		top := t.TempDir()
		tree{"outside/f": "theirs", "outside/x/y": "theirs", "base/a/b": "1", "base/l": "-> ../outside", "base/k": "-> ..", "base/out": "-> /", "f": "t"}.write(t, top)
		outside := read(t, top)
		for p := range outside {
			if p == "base" || len(p) > 4 && p[:5] == "base/" {
				delete(outside, p)
			}
		}
		s := hostileStream(in)
		if len(in) > 0 && in[0]%2 == 0 {
			s = legalStream(t, in[1:])
		}
		only := []string{"."}
		if len(in) > 1 && in[1]%4 == 0 { // below links, not the links themselves
			only = []string{"l/f", "l/x", "k/f", "k/outside/f", "out/tmp/f"}
		}
		res, err := apply(t, top+"/base", s, workspace.ApplyOptions{Paths: only, Force: true, Allow: hostileAllowed})
		now := read(t, top)
		for p := range now {
			if p == "base" || len(p) > 4 && p[:5] == "base/" {
				delete(now, p)
			}
		}
		if d := cmp.Diff(outside, now); d != "" {
			t.Fatalf("outside changed (-before +after):\n%s\n%+v, %v", d, res, err)
		}
	})
}

// hostileAllowed are those of hostileNames that a user can name at all.
var hostileAllowed = []string{"a", "b", "a/b", "a/b/c", "l", "l/x", ".git", "k", "k/f", "out", "out/f", "a/l", "z"}
