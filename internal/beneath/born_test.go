package beneath_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// When a link was made says nothing of what it leads to, and no edit changes when a file was made.
func TestBornAt(t *testing.T) {
	d, err := os.Open(t.TempDir())
	must(t, err)
	defer d.Close()
	path := func(name string) string { return filepath.Join(d.Name(), name) }
	write := func(name string) { must(t, os.WriteFile(path(name), []byte(name), 0o644)) }
	write("file")
	born := beneath.BornAt(d, "file")
	if born == 0 {
		t.Skip("needs a file system that tells when a file was made, as ext4, xfs and tmpfs do")
	}
	for beneath.BornAt(d, "later") <= born { // its clock is a coarse one
		_ = os.Remove(path("later"))
		write("later")
	}
	write("file")
	must(t, unix.Symlink("file", path("link")))
	f, err := os.Open(path("file"))
	must(t, err)
	defer f.Close()
	if at, of := beneath.BornAt(d, "file"), beneath.Born(f); at != born || of != born {
		t.Errorf("the file was made at %d, and by its name at %d, want %d", of, at, born)
	}
	if got := beneath.BornAt(d, "link"); got <= born {
		t.Errorf("the link was made at %d, and what it leads to before, at %d", got, born)
	}
	if got := beneath.BornAt(d, "none"); got != 0 {
		t.Errorf("what is not there was made at %d", got)
	}
}
