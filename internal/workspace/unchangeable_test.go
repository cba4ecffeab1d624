package workspace_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// asUser runs f on a thread with the rights of a user alone.
func asUser(t *testing.T, user uint32, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its identity
		if err := (rights.Identity{UID: user, GID: user}).Effective(); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// TestUnchangeable: what a user may not change on the host is held back by name, in a diff and in an apply,
// and stops nothing else. To name it is an error that says why, before anything is written.
func TestUnchangeable(t *testing.T) {
	const user = 4711
	for _, c := range []struct {
		name string
		do   func(t *testing.T, u string)
		want []string // * is held back
		says string
	}{
		{"in a directory that is closed", func(t *testing.T, u string) { tree{"closed/x": "new"}.write(t, u) }, []string{"*A closed/x"}, "you may not read closed"},
		{"a closed directory made anew", func(t *testing.T, u string) {
			tree{"closed/x": "new"}.write(t, u)
			opaque(t, u+"/closed")
		}, []string{"*D closed", "*A closed/x"}, "you may not read"},
		{"a closed directory deleted", func(t *testing.T, u string) { whiteout(t, u+"/closed") }, []string{"*D closed"}, "you may not read all of it"},
		{"a closed directory for a file", func(t *testing.T, u string) { tree{"closed": "new"}.write(t, u) }, []string{"*T closed"}, "you may not read all of it"},
		{"a file of another's directory", func(t *testing.T, u string) { tree{"shared/g": "new"}.write(t, u) }, []string{"*M shared/g"}, "you may not write in shared"},
		{"deleted there", func(t *testing.T, u string) {
			tree{"shared/n": "new"}.write(t, u)
			whiteout(t, u+"/shared/g")
		}, []string{"*D shared/g", "*A shared/n"}, "you may not write in shared"},
		{"a new directory there", func(t *testing.T, u string) { tree{"shared/n/m": "new"}.write(t, u) }, []string{"*A shared/n", "*A shared/n/m"}, "you may not write in shared"},
		{"another's directory deleted", func(t *testing.T, u string) { whiteout(t, u+"/shared") }, []string{"*D shared"}, "you may not write in shared"},
		{"the mode of another's file", func(t *testing.T, u string) { tree{"file": "x! root's"}.write(t, u) }, []string{"*X file"}, "not yours to change"},
		{"a directory of one's own in another's", func(t *testing.T, u string) { tree{"shared/mine/f": "new"}.write(t, u) }, []string{"M shared/mine/f"}, ""},
		{"another's file in a directory of one's own", func(t *testing.T, u string) { tree{"file": "new"}.write(t, u) }, []string{"M file"}, ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			base := t.TempDir()
			must(t, os.Chmod(filepath.Dir(base), 0o777)) // a user's own temporary directories are beside it
			tree{"closed/f": "root's", "shared/g": "root's", "shared/mine/f": "old", "file": "root's", "a": "old", "z": "old"}.write(t, base)
			for _, name := range []string{"", "a", "shared/mine", "z"} {
				must(t, os.Chown(filepath.Join(base, name), user, user))
			}
			must(t, os.Chmod(base+"/closed", 0o700))
			before := read(t, base)
			upper := t.TempDir()
			tree{"a": "new", "z": "new"}.write(t, upper)
			c.do(t, upper)
			s := stream(t, upper, options(true, future))
			want := append(append([]string{"M a"}, c.want...), "M z")
			asUser(t, user, func() {
				diff(t, "changes", letters(compare(t, base, s).Items), want)
				r, err := apply(t, base, s, workspace.ApplyOptions{})
				must(t, err)
				for _, it := range r.Held {
					if !strings.Contains(it.Held, c.says) {
						t.Errorf("%s: %q does not say %q", it.Path, it.Held, c.says)
					}
				}
				if c.says == "" {
					return
				}
				named := strings.Fields(c.want[len(c.want)-1])[1]
				_, err = apply(t, base, s, workspace.ApplyOptions{Paths: []string{named}, Allow: []string{named}})
				if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "you may not") && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s, named: %v", named, err)
				}
			})
			before["a"], before["z"] = "new", "new"
			if c.says == "" {
				before[strings.Fields(c.want[0])[1]] = "new"
			}
			diff(t, "base", read(t, base), before)

			// The control: root may do all of it.
			_, err := workspace.Apply(t.Context(), openBase(t, base), bytes.NewReader(s), workspace.ApplyOptions{Force: true, Paths: []string{"."}})
			must(t, err)
			if after := read(t, base); c.says != "" && maps.Equal(after, before) {
				t.Error("nothing that was held back is a change for root")
			}
		})
	}
}
