package workspace_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
	"github.com/carboy-sandbox/carboy/test/long"
)

// madeBy returns a moment by which all that is below dir was made, and after which
// what happens now is told apart from it.
func madeBy(t *testing.T, dir string) time.Time {
	t.Helper()
	var last int64
	must(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		last = max(last, changeTime(t, p))
		return err
	}))
	const slack = int64(11 * time.Millisecond)
	clock := filepath.Join(t.TempDir(), "clock")
	for tick := int64(0); tick <= last+slack; tick = changeTime(t, clock) {
		must(t, os.WriteFile(clock, nil, 0o644))
	}
	return time.Unix(0, last+slack)
}

func changeTime(t *testing.T, name string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(name, &st))
	return st.Ctim.Nano()
}

func nameToo(t *testing.T, base, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(base, to)), 0o755))
	must(t, os.Link(filepath.Join(base, from), filepath.Join(base, to)))
}

// What goes takes names of files along that have others, and those change with it.
// That is no change of the host's: not for what else goes, nor in the next apply.
func TestNamesOfOneFile(t *testing.T) {
	tests := []struct {
		name   string
		links  [][2]string // in a base of d/a, d/s/b and e/c
		first  func(t *testing.T, u string)
		second func(t *testing.T, u string)
		want   tree
	}{
		{
			name: "in-a-directory-that-goes", links: [][2]string{{"d/a", "d/a2"}, {"d/a", "d/s/a3"}},
			first: func(t *testing.T, u string) { whiteout(t, u+"/d") },
			want:  tree{"e": "/", "e/c": "3"},
		},
		{
			name: "in-two-that-go", links: [][2]string{{"d/a", "e/a"}, {"e/c", "d/s/c"}},
			first: func(t *testing.T, u string) { whiteout(t, u+"/d"); whiteout(t, u+"/e") },
			want:  tree{},
		},
		{
			name: "one-goes-before-the-directory-of-another", links: [][2]string{{"e/c", "d/c"}, {"d/a", "a"}},
			first: func(t *testing.T, u string) { whiteout(t, u+"/a"); whiteout(t, u+"/d"); whiteout(t, u+"/e") },
			want:  tree{},
		},
		{
			name: "replaced-and-removed", links: [][2]string{{"d/a", "a"}},
			first: func(t *testing.T, u string) { tree{"a": "new"}.write(t, u); whiteout(t, u+"/d") },
			want:  tree{"a": "new", "e": "/", "e/c": "3"},
		},
		{
			name: "by-a-directory-and-removed", links: [][2]string{{"d/a", "a"}},
			first: func(t *testing.T, u string) { tree{"a/n": "new"}.write(t, u); whiteout(t, u+"/d") },
			want:  tree{"a": "/", "a/n": "new", "e": "/", "e/c": "3"},
		},
		{
			name: "removed-then-changed", links: [][2]string{{"d/a", "e/a"}, {"d/a", "f/a"}},
			first:  func(t *testing.T, u string) { whiteout(t, u+"/d") },
			second: func(t *testing.T, u string) { tree{"e/a": "x! new"}.write(t, u); whiteout(t, u+"/f") },
			want:   tree{"e": "/", "e/a": "x! new", "e/c": "3"},
		},
		{
			name: "changed-then-removed", links: [][2]string{{"d/a", "e/a"}, {"d/a", "a"}},
			first:  func(t *testing.T, u string) { tree{"a": "new"}.write(t, u) },
			second: func(t *testing.T, u string) { whiteout(t, u+"/d"); whiteout(t, u+"/e") },
			want:   tree{"a": "new"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base, upper := twoDirs(t, tree{"d/a": "1", "d/s/b": "2", "e/c": "3"})
			for _, l := range tt.links {
				nameToo(t, base, l[0], l[1])
			}
			since := madeBy(t, base)
			tt.first(t, upper)
			res, err := apply(t, base, stream(t, upper, options(true, since)), workspace.ApplyOptions{})
			must(t, err)
			if tt.second != nil {
				tt.second(t, upper)
				_, err = apply(t, base, stream(t, upper, options(true, since)), workspace.ApplyOptions{Applied: res.Marks})
				must(t, err)
			}
			diff(t, "base", read(t, base), tt.want)
			leftovers(t, filepath.Dir(base))
		})
	}
}

// A symbolic link may have several names, too.
func TestNamesOfOneLink(t *testing.T) {
	base, upper := twoDirs(t, tree{"d/l": "-> x", "e/k": "1"})
	must(t, unix.Linkat(unix.AT_FDCWD, base+"/d/l", unix.AT_FDCWD, base+"/d/m", 0))
	must(t, unix.Linkat(unix.AT_FDCWD, base+"/d/l", unix.AT_FDCWD, base+"/e/l", 0))
	since := madeBy(t, base)
	whiteout(t, upper+"/d")
	whiteout(t, upper+"/e")
	_, err := apply(t, base, stream(t, upper, options(true, since)), workspace.ApplyOptions{})
	must(t, err)
	diff(t, "base", read(t, base), tree{})
}

// Whoever else changes such a file is noticed: before the apply that takes a name
// of it, and after.
func TestNamesOfOneFileChangedByOthers(t *testing.T) {
	changes := map[string]func(name string) error{
		"content": func(name string) error { return os.WriteFile(name, []byte("mine"), 0o644) },
		"mode":    func(name string) error { return os.Chmod(name, 0o600) },
		"another-name": func(name string) error {
			return os.Link(name, filepath.Join(filepath.Dir(name), "another"))
		},
	}
	for what, change := range changes {
		for _, when := range []string{"before", "between", "never"} {
			t.Run(what+"-"+when, func(t *testing.T) {
				base, upper := twoDirs(t, tree{"d/a": "1", "e/k": "2"})
				outside := filepath.Join(t.TempDir(), "outside")
				must(t, os.Link(base+"/d/a", outside))
				nameToo(t, base, "d/a", "e/a")
				since := madeBy(t, base)
				whiteout(t, upper+"/d")
				s := stream(t, upper, options(true, since))
				if when == "before" {
					must(t, change(outside))
					if _, err := apply(t, base, s, workspace.ApplyOptions{}); sandbox.KindOf(err) != sandbox.Conflict {
						t.Fatalf("an apply after the change: %v, want a conflict", err)
					}
				}
				// By force it goes, and nothing is taken for ours that was theirs.
				res, err := apply(t, base, s, workspace.ApplyOptions{Force: when == "before", Paths: []string{"d"}})
				must(t, err)
				if when == "between" {
					must(t, change(outside))
				}
				whiteout(t, upper+"/e")
				_, err = apply(t, base, stream(t, upper, options(true, since)), workspace.ApplyOptions{Applied: res.Marks})
				if conflict := sandbox.KindOf(err) == sandbox.Conflict; conflict != (when != "never") {
					t.Errorf("the next apply: %v", err)
				}
			})
		}
	}
}

// linked is a base of random trees and links, what its workspace changed of it, and
// what is to come of that.
type linked struct {
	t           *testing.T
	r           *rand.Rand
	base, upper string
	want        tree
}

func newLinked(t *testing.T, seed uint64) *linked {
	m := &linked{t: t, r: rand.New(rand.NewPCG(seed, 1)), want: tree{}}
	m.base, m.upper = twoDirs(t, tree{})
	dirs := []string{"", "a/", "b/", "b/c/", "d/", "d/e/", "d/e/f/"}
	var files []string
	for i := range 6 + m.r.IntN(12) {
		name := dirs[m.r.IntN(len(dirs))] + fmt.Sprint("f", i)
		if len(files) > 0 && m.r.IntN(5) < 3 {
			nameToo(t, m.base, files[m.r.IntN(len(files))], name)
		} else {
			tree{name: fmt.Sprint("content ", i)}.write(t, m.base)
		}
		files = append(files, name)
	}
	m.want = read(t, m.base)
	return m
}

// change does something to what is there, in the workspace.
func (m *linked) change() string {
	var paths []string
	for p := range m.want {
		paths = append(paths, p)
	}
	if len(paths) == 0 {
		return "nothing"
	}
	slices.Sort(paths)
	p := paths[m.r.IntN(len(paths))]
	kind := m.r.IntN(6)
	file := m.want[p] != "/" && !strings.HasPrefix(m.want[p], "-> ")
	if !file || kind < 2 {
		m.forget(p)
		whiteout(m.t, m.upper+"/"+p)
		return "remove " + p
	}
	to := tree{}
	switch kind {
	case 2:
		to[p] = fmt.Sprint("new ", m.r.IntN(1000))
	case 3:
		to[p] = "x! " + strings.TrimPrefix(m.want[p], "x! ")
	case 4:
		to[p] = "-> nowhere"
	default:
		to[p+"/n"] = "inside"
	}
	m.forget(p)
	to.write(m.t, m.upper)
	if kind == 5 {
		m.want[p] = "/"
	}
	for name, what := range to {
		m.want[name] = what
	}
	return fmt.Sprint("have ", to)
}

func (m *linked) forget(p string) {
	must(m.t, os.RemoveAll(filepath.Join(m.upper, p)))
	must(m.t, os.MkdirAll(filepath.Dir(filepath.Join(m.upper, p)), 0o755))
	for name := range m.want {
		if name == p || strings.HasPrefix(name, p+"/") {
			delete(m.want, name)
		}
	}
}

// Whatever names the files of a base have, what is applied of a workspace comes
// out as it is there, again and again.
func TestRandomLinks(t *testing.T) {
	for seed := range long.Rounds[int64](8, 1000) {
		m := newLinked(t, uint64(seed))
		since := madeBy(t, m.base)
		var marks []workspace.Mark
		var done []string
		for range 3 {
			for range 1 + m.r.IntN(4) {
				done = append(done, m.change())
			}
			res, err := apply(t, m.base, stream(t, m.upper, options(true, since)), workspace.ApplyOptions{Applied: marks})
			if err != nil {
				t.Fatalf("seed %d, after %q: %v", seed, done, err)
			}
			marks = workspace.LastMarks(append(marks, res.Marks...))
			if got := read(t, m.base); !slices.Equal(lines(got), lines(m.want)) {
				t.Fatalf("seed %d, after %q:\ngot  %q\nwant %q", seed, done, lines(got), lines(m.want))
			}
			done = append(done, "apply")
		}
	}
}

func lines(tr tree) (all []string) {
	for name, what := range tr {
		all = append(all, name+": "+what)
	}
	slices.Sort(all)
	return all
}
