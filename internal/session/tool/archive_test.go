package tool_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"testing"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
)

type archive struct {
	name  string
	bytes []byte
	ok    bool
}

// archives are what a guest may send as an outbox, good and bad.
func archives(t testing.TB) []archive {
	t.Helper()
	file := func(name string) tar.Header { return tar.Header{Name: name, Size: 1, Typeflag: tar.TypeReg} }
	many := make([]tar.Header, tools.MaxAttachments+1)
	for i := range many {
		many[i] = file(fmt.Sprint(i))
	}
	list := []struct {
		name   string
		files  []tar.Header
		report string
		ok     bool
	}{
		{"none", nil, `{"files":0,"skipped":[]}`, true},
		{"one", []tar.Header{file("a.png")}, `{"files":1,"skipped":[{"name":"x\u001b","reason":"y"}]}`, true},
		{"deep", []tar.Header{file("a/b/c")}, `{"files":1}`, true},
		{"no-report", []tar.Header{file("a")}, "", false},
		{"no-json", []tar.Header{file("a")}, "x", false},
		{"miscounted", []tar.Header{file("a")}, `{"files":2}`, false},
		{"up", []tar.Header{file("../a")}, `{"files":1}`, false},
		{"absolute", []tar.Header{file("/etc/a")}, `{"files":1}`, false},
		{"dots", []tar.Header{file("a/./b")}, `{"files":1}`, false},
		{"link", []tar.Header{{Name: "a", Linkname: "/etc", Typeflag: tar.TypeSymlink}}, `{"files":1}`, false},
		{"directory", []tar.Header{{Name: "a/", Typeflag: tar.TypeDir}}, `{"files":0}`, false},
		{"many", many, fmt.Sprintf(`{"files":%d}`, len(many)), false},
		{"huge", []tar.Header{{Name: "a", Size: tools.MaxAttachmentBytes + 1, Typeflag: tar.TypeReg}}, `{"files":1}`, false},
	}
	var out []archive
	for _, l := range list {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range l.files {
			must(t, w.WriteHeader(&h))
			_, err := w.Write(make([]byte, h.Size))
			must(t, err)
		}
		if l.report != "" {
			must(t, w.WriteHeader(&tar.Header{Name: guest.CollectReport, Size: int64(len(l.report)), Typeflag: tar.TypeReg}))
			_, err := w.Write([]byte(l.report))
			must(t, err)
		}
		must(t, w.Close())
		out = append(out, archive{l.name, buf.Bytes(), l.ok})
	}
	whole := out[1].bytes
	return append(out, archive{"cut", whole[:700], false}, archive{"empty", nil, false}, archive{"noise", []byte("noise"), false})
}
