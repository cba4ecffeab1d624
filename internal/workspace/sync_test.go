package workspace_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func scan(t *testing.T, base string, f sandbox.ChangesFilter, paths ...string) *workspace.Scanned {
	t.Helper()
	s, err := openBase(t, base).Scan(t.Context(), f, paths)
	must(t, err)
	return s
}

func foundPaths(found []workspace.Found) []string {
	out := []string{}
	for _, f := range found {
		out = append(out, f.Path)
	}
	return out
}

// TestScan finds what counts, and nothing outside the base.
func TestScan(t *testing.T) {
	outside := t.TempDir()
	tree{"secret": "s"}.write(t, outside)
	base := t.TempDir()
	tree{
		".gitignore": "node_modules/\n", ".git/config": "c", "node_modules/m": "m", "a": "a", "d/b": "b", "d/.git/config": "c", "new\nline": "n",
		"link": "-> " + outside + "/secret", "dirlink": "-> " + outside,
	}.write(t, base)
	must(t, os.Mkdir(base+"/empty", 0o755))
	must(t, unix.Mkfifo(base+"/pipe", 0o644))
	diff(t, "found", foundPaths(scan(t, base, rules(t, base).Filter).Files), []string{".gitignore", "a", "d/b", "dirlink", "empty", "link", "new\nline"})
	diff(t, "below a path", foundPaths(scan(t, base, rules(t, base).Filter, "d").Files), []string{"d/b"})
	diff(t, "ignored and named", foundPaths(scan(t, base, rules(t, base).Filter, "node_modules").Files), []string{"node_modules/m"})
	diff(t, "through a link", foundPaths(scan(t, base, sandbox.ChangesFilter{}, "dirlink/secret").Files), []string{})
}

// TestWriteSyncFollowsNothing: what became a link after it was found is not read.
func TestWriteSyncFollowsNothing(t *testing.T) {
	outside := t.TempDir()
	tree{"secret": "canary", "d/f": "canary"}.write(t, outside)
	base := t.TempDir()
	tree{"f": "mine", "d/f": "mine", "kept": "mine"}.write(t, base)
	found := scan(t, base, sandbox.ChangesFilter{}).Files
	must(t, os.Remove(base+"/f"))
	must(t, os.Symlink(outside+"/secret", base+"/f"))
	must(t, os.RemoveAll(base+"/d"))
	must(t, os.Symlink(outside+"/d", base+"/d"))
	var b bytes.Buffer
	brought, err := openBase(t, base).WriteSync(t.Context(), &b, found)
	must(t, err)
	if bytes.Contains(b.Bytes(), []byte("canary")) {
		t.Error("it read what is outside")
	}
	if text, err := os.ReadFile(base + "/d/f"); err != nil || string(text) != "canary" {
		t.Errorf("a read by name = %q, %v: the test proves nothing", text, err)
	}
	if len(brought) != 1 || brought[0].Path != "kept" {
		t.Errorf("brought = %+v, want kept alone", brought)
	}
	for tr := tar.NewReader(&b); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Name != "kept" {
			t.Errorf("the archive has %q", h.Name)
		}
	}
}

func TestPlanSync(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{
		"mine": "1", "both": "1", "same": "1", "theirs-gone": "1", "mine-gone": "1", "both-gone": "1", "edited-gone": "1",
		"dir/x": "1", "again/x": "1", "again/y": "1", "linked/x": "1", "to-dir": "1",
	}.write(t, base)
	since := laterThan(t, t.TempDir())
	merged, upper := overlay(t, base)
	tree{"both": "2", "same": "22", "edited-gone": "2"}.write(t, merged)
	for _, p := range []string{"theirs-gone", "both-gone", "again", "linked", "dir", "to-dir"} {
		must(t, os.RemoveAll(merged+"/"+p))
	}
	tree{"again/new": "n", "linked": "-> /etc", "to-dir/x": "1"}.write(t, merged)
	s := stream(t, upper, options(false, since))

	seen := scan(t, base, sandbox.ChangesFilter{}).Files
	tree{"mine": "22", "both": "33", "same": "22", "theirs-gone": "22", "dir/x": "22", "again/x": "22", "linked/x": "22", "new": "1", "to-dir": "22"}.write(t, base)
	for _, p := range []string{"mine-gone", "both-gone", "edited-gone"} {
		must(t, os.Remove(base+"/"+p))
	}
	var marks []workspace.Mark
	for _, f := range seen {
		marks = append(marks, f.Mark)
	}
	now := scan(t, base, sandbox.ChangesFilter{}).Files
	set, err := workspace.Load(t.Context(), bytes.NewReader(s), workspace.LoadOptions{})
	must(t, err)
	b := openBase(t, base)
	plan, err := workspace.PlanSync(t.Context(), b, set, workspace.CompareOptions{}, workspace.ChangedSince(now, marks, time.Time{}), []string{"mine-gone", "both-gone", "edited-gone"})
	must(t, err)
	diff(t, "bring", foundPaths(plan.Bring), []string{"mine", "new"})
	diff(t, "delete", plan.Delete, []string{"mine-gone"})
	var same, left []string
	for _, x := range plan.Same {
		same = append(same, x.Path)
	}
	for _, c := range plan.Conflicts {
		left = append(left, c.Path)
	}
	diff(t, "same", same, []string{"both-gone", "same"})
	diff(t, "left", left, []string{"edited-gone", "again/x", "both", "dir/x", "linked/x", "theirs-gone", "to-dir"})

	// What a sync brought is not the sandbox's own change.
	brought, err := b.WriteSync(t.Context(), io.Discard, now)
	must(t, err)
	tree{"both": "33"}.write(t, upper)
	set, err = workspace.Load(t.Context(), bytes.NewReader(stream(t, upper, options(false, since))), workspace.LoadOptions{})
	must(t, err)
	tree{"both": "444"}.write(t, base)
	plan, err = workspace.PlanSync(t.Context(), b, set, workspace.CompareOptions{Brought: brought}, scan(t, base, sandbox.ChangesFilter{}, "both").Files, nil)
	must(t, err)
	diff(t, "bring again", foundPaths(plan.Bring), []string{"both"})
	if strings.Join(plan.Delete, "") != "" {
		t.Errorf("delete = %q", plan.Delete)
	}
}
