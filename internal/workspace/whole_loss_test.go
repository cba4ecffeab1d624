package workspace_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// wholeView is a view of a base, on file systems in memory, of which changes are applied as a sandbox's are.
type wholeView struct {
	base, view, upper string
	marks             []workspace.Mark
	reader            *rights.Reader
	since             time.Time // zero: no change of the base is one of the host's
}

func newWholeView(t *testing.T, files tree) *wholeView {
	t.Helper()
	privateMounts(t)
	dir := t.TempDir()
	mount(t, "none", dir, "tmpfs", "")
	v := &wholeView{base: dir + "/base"}
	must(t, os.Mkdir(v.base, 0o755))
	files.write(t, v.base)
	v.view, v.upper = overlayOn(t, v.base, dir)
	return v
}

// changes are those of a view that is whole.
func (v *wholeView) changes(t *testing.T, paths ...string) []byte {
	t.Helper()
	return v.filtered(t, sandbox.ChangesFilter{}, paths...)
}

func (v *wholeView) filtered(t *testing.T, f sandbox.ChangesFilter, paths ...string) []byte {
	t.Helper()
	w := wholeOptions(paths...)
	w.Origins, w.Selves, w.Filter = true, true, f
	if !v.since.IsZero() {
		w.Since = v.since
	}
	return written(t, workspace.OverlayUpper(openDir(t, v.upper), below(v.base), v.reader), w)
}

// apply applies changes of a view, which is mounted anew then.
func (v *wholeView) apply(t *testing.T, o workspace.ApplyOptions) *workspace.Result {
	t.Helper()
	res := v.take(t, o)
	remount(t, v.base, v.view, v.upper)
	return res
}

// take applies changes of a view that goes on.
func (v *wholeView) take(t *testing.T, o workspace.ApplyOptions) *workspace.Result {
	t.Helper()
	must(t, makeWhole(t, v.view, v.upper, v.base))
	o.Applied = v.marks
	res, err := apply(t, v.base, v.filtered(t, o.Filter, o.Paths...), o)
	must(t, err)
	v.marks = res.Marks
	return res
}

// What is not taken at its new place stays at the old one, until both are taken.
func TestRenamedNotTaken(t *testing.T) {
	files := tree{"src/.github/workflows/ci.yml": "ci", "src/a": "1", "src/b.log": "2"}
	for name, o := range map[string]workspace.ApplyOptions{
		"held-back": {},
		"not-named": {Paths: []string{"src"}, Allow: []string{"src"}},
		"excluded":  {Filter: sandbox.ChangesFilter{Exclude: []string{"lib"}}, Allow: []string{"src"}},
		"declined": {Allow: []string{"lib/.github"}, Confirm: func(it workspace.Item) (bool, error) {
			return it.Path != "lib/a", nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWholeView(t, files)
			must(t, os.Rename(v.view+"/src", v.view+"/lib"))
			was := read(t, v.view)
			res := v.apply(t, o)
			if got := read(t, v.base); got["src/a"] != "1" || got["src/.github/workflows/ci.yml"] != "ci" {
				t.Errorf("the base lost what was not taken: %q, held %q", got, letters(res.Held))
			}
			diff(t, "view", read(t, v.view), was)
			// The control: named at both places, all goes.
			v.apply(t, workspace.ApplyOptions{Allow: []string{"lib/.github", "src"}})
			diff(t, "base", read(t, v.base), was)
		})
	}
}

// What the host's user renamed or deleted there takes nothing else along.
func TestRenamedOnBothSides(t *testing.T) {
	for name, host := range map[string]func(t *testing.T, base string){
		"the-same": func(t *testing.T, b string) { must(t, os.Rename(b+"/src", b+"/lib")) },
		"the-same-and-another-in-its-place": func(t *testing.T, b string) {
			must(t, os.Rename(b+"/src", b+"/lib"))
			must(t, os.Mkdir(b+"/src", 0o755))
		},
		"deleted-and-another-there": func(t *testing.T, b string) {
			must(t, os.RemoveAll(b+"/src"))
			must(t, os.Rename(b+"/other", b+"/lib"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWholeView(t, tree{"src/a": "1", "src/b": "2", "other/o": "3"})
			must(t, os.Rename(v.view+"/src", v.view+"/lib"))
			host(t, v.base)
			before := tokens(read(t, v.base))
			for range 2 {
				v.apply(t, workspace.ApplyOptions{Paths: []string{"lib"}})
			}
			for text := range before {
				if !tokens(read(t, v.base))[text] {
					t.Errorf("the base lost %q: it has %q", text, read(t, v.base))
				}
			}
		})
	}
}

// tokens are the contents of a tree's files.
func tokens(tr tree) map[string]bool {
	all := map[string]bool{}
	for _, text := range tr {
		if text != "/" {
			all[text] = true
		}
	}
	return all
}

// What is made whole is copied with root's rights. What the owner of the base may not read is in no stream all the
// same, and stays in the base.
func TestWholeUnreadable(t *testing.T) {
	const user = 4711
	v := newWholeView(t, tree{"src/a": "1", "src/secret": "only root's", "src/closed/f": "root's too"})
	v.reader = &rights.Reader{UID: user, GID: user}
	must(t, os.Chown(v.base, user, user))
	must(t, os.Chmod(v.base+"/src/secret", 0o600))
	must(t, os.Chmod(v.base+"/src/closed", 0o700))
	must(t, os.Rename(v.view+"/src", v.view+"/lib"))
	o := options(true, future)
	o.Origins = true
	sum := func() workspace.Sum {
		low := &workspace.Below{Open: below(v.base).Open, As: asOf(t, user)}
		return compare(t, v.base, written(t, workspace.OverlayUpper(openDir(t, v.upper), low, v.reader), o)).Sum()
	}
	before := sum()
	must(t, makeWhole(t, v.view, v.upper, v.base))
	diff(t, "what a diff is known by", sum(), before)
	v.apply(t, workspace.ApplyOptions{})
	if got := read(t, v.base); got["src/secret"] != "only root's" || got["src/closed/f"] != "root's too" || got["lib/a"] != "1" {
		t.Errorf("the base: %q", got)
	}
	// Who names it has it removed all the same, and is told what to name.
	res := v.apply(t, workspace.ApplyOptions{Allow: []string{"src"}, Paths: []string{"src"}})
	if len(res.Held) != 1 || res.Held[0].With != "lib/secret" || !res.Held[0].Nameable() {
		t.Errorf("held %+v, want src, with lib/secret", res.Held)
	}
	both := []string{"src", "lib/secret"}
	v.apply(t, workspace.ApplyOptions{Allow: both, Paths: both})
	diff(t, "base", read(t, v.base), tree{"lib": "/", "lib/a": "1"})
	for owner, told := range map[*rights.Reader]bool{v.reader: false, nil: true} { // nil is the control
		s := written(t, workspace.OverlayUpper(openDir(t, v.upper), below(v.base), owner), wholeOptions())
		if got := bytes.Contains(s, []byte("only root's")) || bytes.Contains(s, []byte("root's too")); got != told {
			t.Errorf("the stream has what only root may read: %t, want %t", got, told)
		}
	}
}
