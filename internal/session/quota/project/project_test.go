package project_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
)

func TestNote(t *testing.T) {
	for _, done := range []bool{false, true} {
		id, ino, is, ok := project.ReadNote(project.WriteNote(project.First+7, 123, done))
		if id != project.First+7 || ino != 123 || is != done || !ok {
			t.Errorf("%v: %d %d %v %v", done, id, ino, is, ok)
		}
	}
	for _, s := range []string{
		"", "1", "2 1543503872 1 done", "1 1543503872 1", "1 1543503872 1 maybe", "1 1543503872 1 done ", "1 1543503872 1 done\n",
		"1 7 1 done", "1 1560281088 1 done", "1 -1 1 done", "1 01543503872 1 done", "1 1543503872 1 done" + strings.Repeat("x", 100),
	} {
		if _, _, _, ok := project.ReadNote(s); ok {
			t.Errorf("%q is a note", s)
		}
	}
}

func FuzzNote(f *testing.F) {
	f.Add("1 1543503872 1 done")
	f.Add("1 1543503873 18446744073709551615 begun")
	f.Fuzz(func(t *testing.T, s string) {
		id, ino, done, ok := project.ReadNote(s)
		if ok && (project.WriteNote(id, ino, done) != s || id < project.First || id >= project.First+project.Span) {
			t.Errorf("%q is %d %d %v", s, id, ino, done)
		}
	})
}

func TestNewID(t *testing.T) {
	for _, b := range []string{"\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x01\x02\x03\x04"} {
		if id, err := project.NewID(strings.NewReader(b)); err != nil || id < project.First || id >= project.First+project.Span {
			t.Errorf("%q: %x, %v", b, id, err)
		}
	}
	if _, err := project.NewID(bytes.NewReader(nil)); err == nil {
		t.Error("chosen by nothing")
	}
}

func TestDevice(t *testing.T) {
	const mounts = "21 1 254:0 / / rw - ext4 /dev/vda rw\n" +
		"22 21 0:5 / /dev rw shared:1 master:2 - devtmpfs dev rw\n" +
		"23 21 254:16 /sub /mnt/a\\040b rw - xfs /dev/my\\040disk rw,prjquota\n" +
		"24 21 254:32 / /x rw - xfs\n25\n"
	for dev, want := range map[string]string{"254:0": "/dev/vda", "0:5": "", "254:16": "/dev/my disk", "254:32": "", "1:1": ""} {
		if got := project.Device(mounts, dev); got != want {
			t.Errorf("%s: %q, want %q", dev, got, want)
		}
	}
}

// TestNoProjects has a file system that enforces none, as those of most machines.
func TestNoProjects(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := new(project.Control)
	_, err = c.Take(t.Context(), dir, 0)
	if err == nil || isUnfit(err, false) {
		t.Skipf("%s enforces projects: %v", dir.Name(), err)
	}
	if !isUnfit(err, true) {
		t.Fatalf("Take = %v", err)
	}
	if _, err := c.Hold(dir, project.First, project.Limits{Bytes: 1}); !isUnfit(err, true) {
		t.Errorf("Hold = %v", err)
	}
	if err := c.Lift(dir, project.First); err != nil {
		t.Errorf("Lift = %v", err)
	}
	if id := c.Of(dir); id != 0 {
		t.Errorf("Of = %d", id)
	}
}
