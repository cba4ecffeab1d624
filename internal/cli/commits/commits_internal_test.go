package commits

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestFailed: what a git inside ended with is told in words that help.
func TestFailed(t *testing.T) {
	g := &guest{sb: &api.Sandbox{Name: "otter"}}
	for _, tt := range []struct {
		name string
		end  *guestv1.Exit
		says string
		want string
		kind sandbox.Kind
	}{
		{"well", &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED}, "warning: x", "", ""},
		{"no-git", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED, Code: 127}, "", "sandbox otter: it has no git that could say its commits", sandbox.Unsupported},
		{"no-repository", &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 128}, "fatal: not a git repository (or any of the parent directories): .git\n", "sandbox otter: /workspace is no repository there", sandbox.Conflict},
		{"broken", &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 128}, "fatal: unable to read abc\nmore\n", "sandbox otter: its git says: unable to read abc", sandbox.Conflict},
		{"killed", &guestv1.Exit{Reason: guestv1.Reason_REASON_OUT_OF_MEMORY, Error: "the sandbox ran out of memory"}, "", "sandbox otter: its git ended with code 137: the sandbox ran out of memory", sandbox.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := g.failed(tt.end, tt.says)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != tt.want || sandbox.KindOf(err) != tt.kind {
				t.Errorf("%v (%s), want %s (%s)", err, sandbox.KindOf(err), tt.want, tt.kind)
			}
		})
	}
}

// TestCheckFetchable: a sandbox whose workspace is no view says what to do instead.
func TestCheckFetchable(t *testing.T) {
	for mode, want := range map[sandbox.WorkspaceMode]string{
		sandbox.WorkspaceCOW: "", sandbox.WorkspaceWritable: "there already", sandbox.WorkspaceReadOnly: "read-only",
		sandbox.WorkspaceVolume: "no view", sandbox.WorkspacePrivate: "no view",
	} {
		err := checkFetchable(&api.Sandbox{Name: "otter", Workspace: api.Workspace{Mode: string(mode), Source: "/repo"}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
}

// TestShow: hostile text is escaped, what a merge brings unseen is named, and what to type
// is one line each.
func TestShow(t *testing.T) {
	var out, errs bytes.Buffer
	taker := &Taker{Console: &console.Console{Stdout: &out, Stderr: &errs, Now: time.Now}}
	id, old := strings.Repeat("a", 40), strings.Repeat("b", 40)
	err := taker.show(&api.Sandbox{Name: "otter"}, &quarantine.Repository{Dir: "/repo"}, &quarantine.Result{Refs: []quarantine.Change{
		{
			Ref: "refs/carboy/otter/fix", Inside: "refs/heads/fix", State: quarantine.Forced, Old: old, New: id,
			Commits: []quarantine.Commit{{ID: id, Subject: "red \x1b[31m\nand\u202eback"}}, Held: []quarantine.Held{{Path: ".github/\x1b.yml", Why: "CI runs it"}},
			HeldKinds: []quarantine.HeldKind{{Why: "CI runs it", Count: 61}},
		},
		{Ref: "refs/carboy/otter/old", State: quarantine.Gone, Old: old},
		{Ref: "refs/carboy/otter/tags/v1", Inside: "refs/tags/v1", State: quarantine.New, New: id, Commits: []quarantine.Commit{{ID: id, Subject: "x"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `fix  1 commit, rewritten: it was bbbbbbbbbb  refs/carboy/otter/fix
  aaaaaaaaaa red \x1b[31m\nand\u202eback
old  gone inside; refs/carboy/otter/old is kept: carboy fetch --prune otter
tags/v1  1 commit, new  refs/carboy/otter/tags/v1
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
	for _, line := range []string{`.github/\x1b.yml  CI runs it`, "… and 60 more", "hint: look:  git log -p ..refs/carboy/otter/fix\n", "hint: merge: git merge refs/carboy/otter/fix\n", "hint: pick:  git cherry-pick ..refs/carboy/otter/fix\n"} {
		if !strings.Contains(errs.String(), line) {
			t.Errorf("stderr lacks %q:\n%s", line, errs.String())
		}
	}
}
