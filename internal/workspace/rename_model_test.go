package workspace_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
	"github.com/carboy-sandbox/carboy/test/long"
)

// renameModel is a view in which random things are done, beside a plain directory in which the same is done, and
// which is applied now and then.
type renameModel struct {
	t    *testing.T
	rnd  *rand.Rand
	opts modelOptions
	log  []string

	base, plain, view, upper string
	since                    time.Time
	marks                    []workspace.Mark
	run                      int // of the view: how often it was mounted
	tokens                   int
}

type modelOptions struct {
	names string // of which paths are made
	host  bool   // the base is changed by others as well; then plain is not looked at
	part  bool   // applies are of some paths, filtered, and of things that are held back
}

func newRenameModel(t *testing.T, seed uint64, o modelOptions) *renameModel {
	t.Helper()
	privateMounts(t)
	dir := t.TempDir()
	mount(t, "none", dir, "tmpfs", "")
	m := &renameModel{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), opts: o, base: dir + "/base", plain: dir + "/plain"}
	must(t, os.Mkdir(m.base, 0o755))
	must(t, os.Mkdir(m.base+"/a", 0o755))
	for range 40 {
		p := filepath.Join(m.base, m.path())
		if os.MkdirAll(filepath.Dir(p), 0o755) == nil && !exists(p) {
			must(t, os.WriteFile(p, []byte(m.token()), 0o644))
		}
	}
	copyTree(t, m.base, m.plain)
	m.since = laterThan(t, dir)
	m.view, m.upper = overlayOn(t, m.base, dir)
	m.run = 1
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(m.log, "\n"))
		}
	})
	return m
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// laterThan returns a time after which no change can be taken for one of those before: it waits for the clock of
// a file system to go on.
func laterThan(t *testing.T, dir string) time.Time {
	t.Helper()
	stamp := func() time.Time {
		p := filepath.Join(dir, "clock")
		must(t, os.WriteFile(p, nil, 0o644))
		st, err := os.Stat(p)
		must(t, err)
		return st.ModTime()
	}
	from := stamp()
	for {
		if now := stamp(); now.Sub(from) > 30*time.Millisecond {
			return now
		}
	}
}

func (m *renameModel) token() string {
	m.tokens++
	return fmt.Sprintf("<%d>", m.tokens)
}

func (m *renameModel) name() string {
	names := strings.Fields(m.opts.names)
	return names[m.rnd.IntN(len(names))]
}

func (m *renameModel) path() string {
	p := m.name()
	for m.rnd.IntN(5) < 3 && strings.Count(p, "/") < 3 {
		p += "/" + m.name()
	}
	return p
}

// there is a path at which something is, if one is found soon.
func (m *renameModel) there(root string) string {
	p := m.path()
	for range 8 {
		if exists(filepath.Join(root, p)) {
			break
		}
		p = m.path()
	}
	return p
}

// step returns a random change of a tree, and what it is called.
func (m *renameModel) step(root string) (name string, do func(root string) error) {
	from, to, text := m.there(root), m.path(), m.token()
	if m.rnd.IntN(2) == 0 {
		to = m.there(root)
	}
	renamed := func(what string, flags uint) (string, func(string) error) {
		return what + " " + from + " " + to, func(r string) error {
			return unix.Renameat2(unix.AT_FDCWD, r+"/"+from, unix.AT_FDCWD, r+"/"+to, flags)
		}
	}
	put := func(what, p string, flags int) (string, func(string) error) {
		return what + " " + p, func(r string) error {
			f, err := os.OpenFile(r+"/"+p, flags|os.O_WRONLY|unix.O_NOFOLLOW, 0o644)
			if err != nil {
				return err
			}
			_, err = f.WriteString(text)
			return errors.Join(err, f.Close())
		}
	}
	switch m.rnd.IntN(14) {
	case 0, 1:
		return "mkdir " + to, func(r string) error { return unix.Mkdir(r+"/"+to, 0o755) }
	case 2:
		return put("write", to, os.O_CREATE|os.O_TRUNC)
	case 3:
		return put("append", from, os.O_APPEND)
	case 4:
		return "rm " + from, func(r string) error { return unix.Unlink(r + "/" + from) }
	case 5:
		return "rm -r " + from, func(r string) error {
			if m.rnd.IntN(3) > 0 || !exists(r+"/"+from) {
				return unix.Rmdir(r + "/" + from)
			}
			return os.RemoveAll(r + "/" + from)
		}
	case 6:
		return "symlink " + to, func(r string) error { return unix.Symlink(strings.Trim(text, "<>"), r+"/"+to) }
	case 7, 8, 9, 10:
		return renamed("mv", 0)
	case 11:
		return renamed("mv -n", unix.RENAME_NOREPLACE)
	}
	return renamed("exchange", unix.RENAME_EXCHANGE)
}

// inside does a random thing in the view and in the plain directory.
func (m *renameModel) inside() {
	m.t.Helper()
	name, do := m.step(m.view)
	seed := m.rnd.Uint64()
	try := func(root string) error {
		m.rnd = rand.New(rand.NewPCG(seed, 2)) // or the two would not do the same
		return do(root)
	}
	err := try(m.view)
	m.log = append(m.log, fmt.Sprintf("%s: %v", name, err))
	if m.opts.host {
		return
	}
	if perr := try(m.plain); (err == nil) != (perr == nil) {
		m.fail("in the view %v, in the plain directory %v", err, perr)
	}
}

func (m *renameModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf(format, args...)
}

// remount ends what has the view mounted, and mounts it again.
func (m *renameModel) remount() {
	m.log = append(m.log, "mount again")
	must(m.t, unix.Unmount(m.view, unix.MNT_DETACH))
	mountView(m.t, m.base, m.view, m.upper)
	m.run = max(m.run, -m.run) + 1
}

// mark names what has the view mounted, as far as anybody knows.
func (m *renameModel) mark() string {
	if m.run < 0 {
		return ""
	}
	return fmt.Sprint("run ", m.run)
}

// changes reads the changes for an apply.
func (m *renameModel) changes(o sandbox.ChangesOptions) []byte {
	m.t.Helper()
	w := workspace.Whole{View: openDir(m.t, m.view), Upper: openDir(m.t, m.upper), Base: below(m.base), Mark: m.mark()}
	err := w.Make(m.t.Context())
	if err == nil {
		w.Seal = true
		err = w.Make(m.t.Context())
	}
	if m.opts.host && sandbox.KindOf(err) == sandbox.Unavailable {
		m.log = append(m.log, fmt.Sprint("whole: ", err))
		return nil
	}
	must(m.t, err)
	o.Content, o.Whole, o.Origins, o.Selves = true, true, true, true
	return written(m.t, workspace.OverlayUpper(openDir(m.t, m.upper), below(m.base), nil), workspace.Options{ChangesOptions: o, Since: m.since, Mark: m.mark()})
}

// tokensOf lists what files of a tree hold.
func tokensOf(tr tree) map[string]bool {
	all := map[string]bool{}
	for _, text := range tr {
		for token := range strings.SplitAfterSeq(text, ">") {
			if i := strings.IndexByte(token, '<'); i >= 0 && !strings.HasPrefix(text, "-> ") {
				all[token[i:]] = true
			}
		}
	}
	return all
}

// apply applies all, or the paths. What the base loses by it is nowhere in the view: the sandbox deleted it, or it
// was taken.
func (m *renameModel) apply(o workspace.ApplyOptions) *workspace.Result {
	m.t.Helper()
	before := read(m.t, m.base)
	s := m.changes(sandbox.ChangesOptions{Paths: o.Paths, Filter: o.Filter})
	if s == nil {
		return &workspace.Result{}
	}
	o.Applied = m.marks
	res, err := apply(m.t, m.base, s, o)
	m.log = append(m.log, fmt.Sprintf("apply %q but %q: %q, %v", o.Paths, o.Filter.Exclude, letters(res.Applied), err))
	for _, c := range res.Conflicts {
		m.log = append(m.log, fmt.Sprintf("  conflict %s: %s", c.Item.Path, c.Reason))
	}
	for _, it := range res.Held {
		m.log = append(m.log, fmt.Sprintf("  held %s: %s", it.Path, it.Held))
	}
	if len(res.Marks) > 0 {
		m.marks = res.Marks
	}
	if err != nil && sandbox.KindOf(err) != sandbox.Conflict && sandbox.KindOf(err) != sandbox.Invalid {
		m.fail("apply: %v", err)
	}
	if m.run < 0 || m.opts.host { // what others delete in the base can't be listed in a view until that is mounted again
		m.remount()
	}
	after, shown := tokensOf(read(m.t, m.base)), tokensOf(m.readView())
	for token := range tokensOf(before) {
		if !after[token] && shown[token] {
			m.fail("the base lost %s, which is in the view and was not taken\nbefore %q\nafter %q\nview %q\nheld %v", token, before, read(m.t, m.base), read(m.t, m.view), res.Held)
		}
	}
	return res
}

// readView reads the view. Where others changed the base, it may show a directory by two paths, which the kernel
// refuses at one of them.
func (m *renameModel) readView() tree {
	m.t.Helper()
	if !m.opts.host {
		return read(m.t, m.view)
	}
	var closed []string
	_ = filepath.WalkDir(m.view, func(p string, d os.DirEntry, err error) error {
		if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ELOOP) {
			closed = append(closed, p)
			return nil
		}
		return err
	})
	if len(closed) == 0 {
		return read(m.t, m.view)
	}
	m.log = append(m.log, fmt.Sprintf("the view can't show %q", closed))
	return tree{}
}

// checkView compares the view with the plain directory.
func (m *renameModel) checkView() {
	m.t.Helper()
	if want, got := read(m.t, m.plain), read(m.t, m.view); !maps.Equal(want, got) {
		diff(m.t, "view", got, want)
		m.fail("the view is not as the plain directory")
	}
}

// applyAll applies all, and checks that the base is as the view then: but for empty directories that the mounted
// view has open, until it is mounted again.
func (m *renameModel) applyAll() {
	m.t.Helper()
	if m.rnd.IntN(2) == 0 {
		res := m.apply(workspace.ApplyOptions{})
		m.checkView()
		want, got := read(m.t, m.plain), read(m.t, m.base)
		maps.DeleteFunc(got, func(p, what string) bool { return what == "/" && want[p] == "" })
		if len(res.Held)+len(res.Conflicts) == 0 && !maps.Equal(want, got) {
			diff(m.t, "base", got, want)
			m.fail("after an apply the base is not as the view that is mounted")
		}
	}
	m.remount()
	m.checkView()
	m.run = -m.run // as of a sandbox that is stopped
	m.apply(workspace.ApplyOptions{})
	m.checkView()
	if want, got := read(m.t, m.plain), read(m.t, m.base); !maps.Equal(want, got) {
		diff(m.t, "base", got, want)
		m.fail("after an apply the base is not as the view")
	}
	if again := compare(m.t, m.base, m.changes(sandbox.ChangesOptions{})).Items; len(again) > 0 {
		m.fail("a second look finds %q", letters(again))
	}
}

// applySome applies a part.
func (m *renameModel) applySome() {
	m.t.Helper()
	var o workspace.ApplyOptions
	for range m.rnd.IntN(3) {
		o.Paths = append(o.Paths, m.there(m.base))
	}
	if m.rnd.IntN(2) == 0 {
		o.Allow = o.Paths
	}
	if m.rnd.IntN(3) == 0 {
		o.Filter.Exclude = []string{m.name()}
	}
	if m.rnd.IntN(4) == 0 {
		o.Confirm = func(workspace.Item) (bool, error) { return m.rnd.IntN(2) == 0, nil }
	}
	m.apply(o)
}

// onHost does a random thing in the base.
func (m *renameModel) onHost() {
	name, do := m.step(m.base)
	err := do(m.base)
	m.log = append(m.log, fmt.Sprintf("host: %s: %v", name, err))
}

func (m *renameModel) steps(n int) {
	m.t.Helper()
	for range n {
		switch r := m.rnd.IntN(20); {
		case r == 0:
			m.remount()
		case r == 1 && m.opts.part:
			m.applySome()
		case r == 2 && m.opts.host:
			m.apply(workspace.ApplyOptions{})
		case r == 2 && !m.opts.part:
			m.applyAll()
		case r < 5 && m.opts.host:
			m.onHost()
		default:
			m.inside()
		}
		if !m.opts.host {
			m.checkView()
		}
	}
}

// A view is as a plain directory in which the same was done, whatever was applied of it between; and no apply takes
// from the base what is in the view and nowhere else.
func TestRenameModel(t *testing.T) {
	rounds, steps := long.Rounds(5, 60), long.Rounds(60, 120)
	for name, o := range map[string]modelOptions{
		"all":             {names: "a b c d"},
		"some":            {names: "a b c .github d", part: true},
		"all-and-host":    {names: "a b c d", host: true},
		"some-and-host":   {names: "a b c .github d", part: true, host: true},
		"deep-and-narrow": {names: "a b"},
	} {
		for i := range rounds {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				m := newRenameModel(t, uint64(i), o)
				m.steps(steps)
				if !o.part && !o.host {
					m.applyAll()
				}
			})
		}
	}
}

// Of a copy, too, applies make the base the same: but for what an apply took from the base, and that is as the copy began
// with it again.
func TestCopyModel(t *testing.T) {
	for i := range long.Rounds(8, 60) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m := &renameModel{t: t, rnd: rand.New(rand.NewPCG(uint64(i), 3)), opts: modelOptions{names: "a b c"}, base: t.TempDir()}
			for range 40 {
				_, do := m.step(m.base)
				_ = do(m.base) // as far as it can be done
			}
			since, began := laterThan(t, t.TempDir()), read(t, m.base)
			dst, manifest, _ := populate(t, m.base, workspace.PopulateOptions{})
			for range long.Rounds(10, 40) {
				for range 10 {
					name, do := m.step(dst)
					m.log = append(m.log, fmt.Sprint(name, ": ", do(dst)))
				}
				o := options(true, since)
				o.Origins = true
				res, err := apply(t, m.base, copyStream(t, dst, manifest, o), workspace.ApplyOptions{Applied: m.marks})
				must(t, err)
				m.marks = res.Marks
				m.log = append(m.log, fmt.Sprint("apply: ", letters(res.Applied)))
				want, got := read(t, dst), read(t, m.base)
				for p, what := range began {
					if want[p] == what && got[p] != what {
						delete(want, p)
						delete(got, p)
					}
				}
				if !maps.Equal(want, got) {
					diff(t, "base", got, want)
					t.Fatal(strings.Join(m.log, "\n"))
				}
			}
		})
	}
}
