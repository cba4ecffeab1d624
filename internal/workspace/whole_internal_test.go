package workspace

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is written in the sandbox between the look at a file and its copy keeps the time of that: a build goes by it.
func TestCopyUpKeepsANewTime(t *testing.T) {
	dir, upper := t.TempDir(), t.TempDir()
	view, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	empty, err := os.Open(upper)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if err := os.WriteFile(dir+"/f", []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	var looked unix.Stat_t
	if err := unix.Stat(dir+"/f", &looked); err != nil {
		t.Fatal(err)
	}
	written := time.Unix(2_000_000_000, 0)
	if err := os.Chtimes(dir+"/f", time.Time{}, written); err != nil {
		t.Fatal(err)
	}
	m := Whole{Base: &Below{}}.walk(context.Background())
	if err := m.copyUp(empty, view, "f", "f", &looked); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(dir + "/f"); err != nil || !fi.ModTime().Equal(written) {
		t.Errorf("the file is of %v, %v, want %v", fi.ModTime(), err, written)
	}
}
