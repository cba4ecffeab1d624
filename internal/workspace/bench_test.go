package workspace_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// manyFiles makes 50,000 files of 200 bytes to 4 KiB in 500 directories.
func manyFiles(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	body := bytes.Repeat([]byte("some text of a source file\n"), 160)
	for d := range 500 {
		sub := filepath.Join(dir, fmt.Sprintf("dir%03d", d))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%02d.txt", f)), body[:200+f*39], 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return dir
}

func writeAll(b *testing.B, dir string, content bool, w io.Writer) {
	b.Helper()
	d, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := workspace.WriteChanges(b.Context(), w, workspace.OverlayUpper(d, nil, nil), options(content, past)); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkWriteChanges50k(b *testing.B) {
	dir := manyFiles(b)
	for _, content := range []bool{false, true} {
		b.Run(fmt.Sprintf("content=%v", content), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				writeAll(b, dir, content, io.Discard)
			}
		})
	}
}

// The floor for the one above: the same files, opened and read.
func BenchmarkReadFiles50k(b *testing.B) {
	dir := manyFiles(b)
	for b.Loop() {
		filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.ReadFile(p)
			}
			return err
		})
	}
}

func BenchmarkCompare50k(b *testing.B) {
	dir := manyFiles(b)
	var s bytes.Buffer
	writeAll(b, dir, false, &s)
	for b.Loop() {
		set, err := workspace.Load(b.Context(), bytes.NewReader(s.Bytes()), workspace.LoadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		base, err := workspace.OpenBase(dir) // everything was copied up, nothing changed
		if err != nil {
			b.Fatal(err)
		}
		d, err := workspace.Compare(b.Context(), base, set, workspace.CompareOptions{})
		if err != nil || len(d.Items) != 0 {
			b.Fatal(len(d.Items), err)
		}
		base.Close()
	}
}

func BenchmarkApply50k(b *testing.B) {
	dir := manyFiles(b)
	var s bytes.Buffer
	writeAll(b, dir, true, &s)
	for b.Loop() {
		b.StopTimer()
		target := b.TempDir()
		base, err := workspace.OpenBase(target)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := workspace.Apply(b.Context(), base, bytes.NewReader(s.Bytes()), workspace.ApplyOptions{}); err != nil {
			b.Fatal(err)
		}
		base.Close()
	}
}

func BenchmarkPopulate50k(b *testing.B) {
	dir := manyFiles(b)
	src, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	for b.Loop() {
		dst, err := os.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := workspace.Populate(b.Context(), src, dst, workspace.PopulateOptions{Manifest: io.Discard}); err != nil {
			b.Fatal(err)
		}
		dst.Close()
	}
}
