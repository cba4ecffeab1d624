package workspace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// copyView is a copy of a base, of which changes are applied as a sandbox's are. Neither is on a file system in memory,
// where the tests are not: that gives no inode number twice.
type copyView struct {
	base, view string
	manifest   []byte
	marks      []workspace.Mark
}

func newCopyView(t *testing.T, files tree) *copyView {
	t.Helper()
	v := &copyView{base: filepath.Join(t.TempDir(), "base")}
	must(t, os.Mkdir(v.base, 0o755))
	files.write(t, v.base)
	v.view, v.manifest, _ = populate(t, v.base, workspace.PopulateOptions{UID: os.Getuid(), GID: os.Getgid()})
	return v
}

// take applies all changes. Any change of the base that no apply made is one of the host's.
func (v *copyView) take(t *testing.T) (*workspace.Result, error) {
	t.Helper()
	o := options(true, past)
	o.Origins, o.Selves = true, true
	res, err := apply(t, v.base, copyStream(t, v.view, v.manifest, o), workspace.ApplyOptions{Applied: v.marks})
	if err == nil {
		v.marks = res.Marks
	}
	return res, err
}

// asOlder has the marks as they were kept before they had a birth time.
func (v *copyView) asOlder(t *testing.T) {
	t.Helper()
	b, err := json.Marshal(v.marks)
	must(t, err)
	var fields []map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	must(t, d.Decode(&fields))
	for _, m := range fields {
		delete(m, "born")
	}
	b, err = json.Marshal(fields)
	must(t, err)
	v.marks = nil
	must(t, json.Unmarshal(b, &v.marks))
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// replace puts something else at a name, and reports whether that has the inode number of what was there: of a few new
// files one has, where the file system gives numbers anew.
func replace(t *testing.T, dir, name, what string) bool {
	t.Helper()
	was := inodeOf(t, filepath.Join(dir, name))
	must(t, os.Remove(filepath.Join(dir, name)))
	for i := 0; ; i++ {
		one := fmt.Sprint("new", i)
		tree{one: what}.write(t, dir)
		same := inodeOf(t, filepath.Join(dir, one)) == was
		if !same && i < 8 {
			continue
		}
		must(t, os.Rename(filepath.Join(dir, one), filepath.Join(dir, name)))
		for ; i > 0; i-- {
			must(t, os.Remove(filepath.Join(dir, fmt.Sprint("new", i-1))))
		}
		return same
	}
}

// What the host's user puts in the place of what an apply made is theirs, and stays when the sandbox deletes its own,
// with no question asked. A file system may give it the inode number of what was there.
func TestReplacedOnHostStays(t *testing.T) {
	for name, what := range map[string]struct{ sandbox, host string }{
		"file":                   {"s", "h"},
		"link":                   {"-> s", "-> h"},
		"link-for-a-file":        {"s", "-> h"},
		"directory-for-the-same": {"/", "/"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newCopyView(t, tree{"keep": "k"})
			again := 0
			for range 40 {
				tree{"f": what.sandbox}.write(t, v.view)
				_, err := v.take(t)
				must(t, err)
				if replace(t, v.base, "f", what.host) {
					again++
					if beneath.BornAt(openDir(t, v.base), "f") == 0 {
						t.Skip("needs a file system that tells when a file was made, as ext4, xfs and tmpfs do")
					}
				}
				must(t, os.Remove(v.view+"/f"))
				if res, err := v.take(t); err != nil {
					t.Fatalf("apply: %v, conflicts %+v", err, res.Conflicts)
				}
				diff(t, "base", read(t, v.base), tree{"keep": "k", "f": what.host})
				must(t, os.RemoveAll(v.base+"/f"))
			}
			t.Logf("%d of 40 had the inode number of what was there", again)
		})
	}
}

// What an apply made, and nobody else touched, goes when the sandbox deletes its own, and what the host's user edited
// does not. What is kept of an apply by an older version, which noted no birth, is enough for both.
func TestMarksOfOlderVersions(t *testing.T) {
	edited := tree{"keep": "k", "d": "/", "d/f": "edited", "l": "-> s"}
	for name, tt := range map[string]struct {
		older, edits bool
		want         tree
	}{
		"untouched":           {want: tree{"keep": "k"}},
		"untouched-and-older": {older: true, want: tree{"keep": "k"}},
		"edited":              {edits: true, want: edited}, // the controls
		"edited-and-older":    {edits: true, older: true, want: edited},
	} {
		t.Run(name, func(t *testing.T) {
			v := newCopyView(t, tree{"keep": "k"})
			tree{"d/f": "s", "l": "-> s"}.write(t, v.view)
			_, err := v.take(t)
			must(t, err)
			if tt.older {
				v.asOlder(t)
			}
			if tt.edits {
				tree{"d/f": "edited"}.write(t, v.base)
			}
			tree{"d": "\x00", "l": "\x00"}.write(t, v.view)
			_, err = v.take(t)
			if conflict := sandbox.KindOf(err) == sandbox.Conflict; conflict != tt.edits || err != nil && !conflict {
				t.Errorf("apply: %v", err)
			}
			diff(t, "base", read(t, v.base), tt.want)
		})
	}
}

// What the host's user does once an apply has ended is younger than all that it left: no edit and no new file can
// pass for what was applied, although file systems have a coarse clock.
func TestApplyEndsBeforeWhatFollows(t *testing.T) {
	for range 40 {
		v := newCopyView(t, tree{"keep": "k"})
		tree{"d/f": "s", "l": "-> s"}.write(t, v.view)
		_, err := v.take(t)
		must(t, err)
		must(t, os.WriteFile(v.base+"/after", nil, 0o644))
		var st unix.Stat_t
		must(t, unix.Lstat(v.base+"/after", &st))
		for _, m := range v.marks {
			if m.CTime >= st.Ctim.Nano() {
				t.Fatalf("%s was left at %d, and what was written after has %d", m.Path, m.CTime, st.Ctim.Nano())
			}
		}
	}
}
