package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// baseOf makes a directory of a user, in which root keeps what only root may read.
func baseOf(t *testing.T, user int) string {
	t.Helper()
	base := t.TempDir()
	tree{"secret": "root's own", "dir/secret": "root's too", "public": "theirs", "shared": "root's, for all"}.write(t, base)
	must(t, filepath.WalkDir(base, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, user, user)
	}))
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "dir/secret": 0o640, "shared": 0o644} {
		must(t, os.Chown(filepath.Join(base, name), 0, 0))
		must(t, os.Chmod(filepath.Join(base, name), mode))
	}
	return base
}

// A rename makes the kernel copy a file up with root's rights. What the directory's owner may not read
// is in no stream, whatever it is called in the view, and is not lost on the host.
func TestRenamedUnreadable(t *testing.T) {
	const user = 4711
	for _, c := range []struct {
		name string
		do   func(t *testing.T, view string)
		want []string // * is held back
	}{
		{"renamed", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/secret", v+"/taken"))
		}, []string{"*D secret", "*A taken"}},
		{"over another", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/secret", v+"/public"))
		}, []string{"*T public", "*D secret"}},
		{"exchanged", func(t *testing.T, v string) {
			must(t, unix.Renameat2(unix.AT_FDCWD, v+"/secret", unix.AT_FDCWD, v+"/public", unix.RENAME_EXCHANGE))
		}, []string{"*T public", "*M secret"}},
		{"linked", func(t *testing.T, v string) {
			must(t, os.Link(v+"/secret", v+"/taken"))
		}, []string{"*T secret", "*A taken"}},
		{"out of a directory that is deleted", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/dir/secret", v+"/taken"))
			must(t, os.Remove(v+"/dir"))
		}, []string{"*D dir", "*A taken"}},
		{"a directory that has it deleted", func(t *testing.T, v string) {
			must(t, os.RemoveAll(v+"/dir"))
		}, []string{"*D dir"}},
		{"for all to read", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/shared", v+"/taken"))
		}, []string{"D shared", "A taken"}},
		{"deleted", func(t *testing.T, v string) {
			must(t, os.Remove(v+"/secret"))
		}, []string{"D secret"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			privateMounts(t)
			base := baseOf(t, user)
			before := read(t, base)
			view, upper := overlay(t, base)
			c.do(t, view)

			s := streamFor(t, &rights.Reader{UID: user, GID: user}, upper, options(true, future))
			if bytes.Contains(s, []byte("root's own")) || bytes.Contains(s, []byte("root's too")) {
				t.Error("the stream has what only root may read")
			}
			items := compare(t, base, s).Items
			diff(t, "changes", letters(items), c.want)
			if !strings.HasPrefix(c.want[0], "*") {
				return
			}
			_, err := apply(t, base, s, workspace.ApplyOptions{}) // as root, who may read it
			must(t, err)
			diff(t, "base after an apply", read(t, base), before)

			if len(c.want) < 2 {
				return
			}
			// The control: read with root's rights it is there.
			if all := stream(t, upper, options(true, future)); !bytes.Contains(all, []byte("root's ")) {
				t.Error("the view has no content of root's")
			}
		})
	}
}

// A view that is a copy lacks what the user may not read: what the sandbox makes by that name
// does not replace it until it is named.
func TestUnreadableIsNotReplaced(t *testing.T) {
	const user = 4711
	base := baseOf(t, user)
	upper := t.TempDir()
	tree{"secret": "mine", "shared": "mine", "public": "mine"}.write(t, upper)
	s := streamFor(t, &rights.Reader{UID: user, GID: user}, upper, options(true, future))
	diff(t, "changes", letters(compare(t, base, s).Items), []string{"M public", "*M secret", "M shared"})
	_, err := apply(t, base, s, workspace.ApplyOptions{})
	must(t, err)
	got := read(t, base)
	diff(t, "secret", got["secret"], "root's own")
	diff(t, "public", got["public"], "mine")
	_, err = apply(t, base, s, workspace.ApplyOptions{Allow: []string{"secret"}})
	must(t, err)
	diff(t, "secret that was named", read(t, base)["secret"], "mine")
}

// A sync by root brings no more of a user's directory than that user may read.
func TestUnreadableIsNotBrought(t *testing.T) {
	base := baseOf(t, 4711)
	must(t, os.MkdirAll(base+"/roots", 0o700))
	tree{"roots/f": "root's"}.write(t, base)
	must(t, os.Chown(base+"/roots", 0, 0))
	found := scan(t, base, sandbox.ChangesFilter{}).Files
	diff(t, "found", foundPaths(found), []string{"dir", "public", "shared"}) // of dir nothing may be read: it looks empty
	must(t, os.Remove(base+"/public"))
	must(t, os.Rename(base+"/secret", base+"/public"))
	var out bytes.Buffer
	_, err := openBase(t, base).WriteSync(t.Context(), &out, found)
	must(t, err)
	if bytes.Contains(out.Bytes(), []byte("root's own")) || !bytes.Contains(out.Bytes(), []byte("root's, for all")) {
		t.Errorf("brought: %q", out.Bytes())
	}
	// The control: in root's own directory it is found.
	must(t, os.Chown(base, 0, 0))
	diff(t, "found of root's", foundPaths(scan(t, base, sandbox.ChangesFilter{}).Files), []string{"dir/secret", "public", "roots/f", "shared"})
}
