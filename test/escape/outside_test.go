package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// look is an attempt that is judged from outside. Those that run in one world
// run in this order: the last ones change the host's trees, as they should.
type look struct {
	name  string
	walls []string // none: all
	look  func(*world) []string
}

var outside = []look{
	{"host-state", nil, hostState},
	{"control-plane", nil, controlPlaneShown},
	{"newborns", nil, newborns},
	{"workspace-source", nil, workspaceSource},
	{"shared-read-only", nil, sharedReadOnly},
	{"shared-git", nil, sharedGit},
	{"shared-dangerous", nil, sharedDangerous},
	{"namespaces-from-outside", []string{facts.Process}, namespacesFromOutside},
	{"descriptors-from-outside", []string{facts.Process}, descriptorsFromOutside},
	{"inherited-descriptors", nil, inheritedDescriptors},
	{"interpreters", nil, interpreters},
	{"agent-program", nil, agentProgram},
	{"environment-from-outside", []string{facts.Process}, environmentFromOutside},
	{"proc-from-outside", []string{facts.Process}, procFromOutside},
	{"sentry-signals", []string{facts.GVisor}, sentrySignals},
	{"terminal-text", nil, terminalText},
	{"copy-dangerous", nil, copyDangerous},
	{"copy-reads-links", nil, copyReadsLinks},
	{"copy-of-planted-links", nil, copyOfPlantedLinks},
	{"copy-follows-links", nil, copyFollowsLinks},
	{"copy-through-planted-links", nil, copyThroughPlantedLinks},
	{"apply-holds", nil, applyHolds},
	{"apply-follows-links", nil, applyFollowsLinks},
	{"read-only-root", nil, readOnlyRoot},
	{"mount-points", nil, mountPoints},
	{"passed-descriptors", nil, passedDescriptors},
	{"held-after-end", nil, heldAfterEnd},
	{"git-replaced", nil, gitReplaced},
	{"replaced-directory", nil, replacedDirectory},
}

// split tells names of attempts inside from those outside.
func split(names []string) (inside, out []string) {
	for _, n := range names {
		if slices.ContainsFunc(outside, func(l look) bool { return l.name == n }) {
			out = append(out, n)
		} else {
			inside = append(inside, n)
		}
	}
	return inside, out
}

// leave has the box leave what might hurt the host, once for a world.
func (w *world) leave() {
	w.t.Helper()
	w.left.Do(func() {
		if r := w.run(nil, "exec", w.box, "--", facts.Tools+"/probe", "leave", facts.Tools+"/facts.json"); r.code != 0 {
			w.t.Errorf("leave: exit code %d: %s%s", r.code, r.stdout, r.stderr)
		} else if testingVerbose() {
			w.t.Logf("%s", r.stdout)
		}
	})
}

func hostState(w *world) (found []string) {
	w.leave()
	for name, is := range hostIdentity() {
		if was := host.identity[name]; is != was {
			found = append(found, fmt.Sprintf("%s was %q, and is %q", name, was, is))
		}
	}
	b, err := os.ReadFile(host.facts.SecretFile)
	if string(b) != host.secret {
		found = append(found, fmt.Sprintf("the secret was changed: %v", err))
	}
	return append(found, changed(w.before["outside"], snapshot(w.path("outside")))...)
}

// newborns has commands started while one looks for those that still have the
// agent's memory.
func newborns(w *world) (found []string) {
	done := make(chan []facts.Result, 1)
	go func() {
		defer close(done) // also where the probe fails
		done <- w.probe("newborn-memory")
	}()
	for {
		w.run(nil, "exec", w.box, "--", "true")
		select {
		case results := <-done:
			for _, r := range results {
				if r.Found || r.Error != "" {
					found = append(found, r.Detail+r.Error)
				}
			}
			return found
		default:
		}
	}
}

func workspaceSource(w *world) []string {
	w.leave()
	return changed(w.before[dirWork], snapshot(w.path(dirWork)))
}

func sharedReadOnly(w *world) []string {
	w.leave()
	return slices.Concat(
		changed(w.before[dirReadOnly], snapshot(w.path(dirReadOnly))),
		changed(w.before[dirTools], snapshot(w.path(dirTools))))
}

// sharedGit wants the host's repository as it was. The wall itself makes the
// files that git would look for and that must not appear, so that it can cover
// them; what they hold is not the guest's.
func sharedGit(w *world) (found []string) {
	w.probe("git-hooks", "git-pinned")
	git := w.path(dirWritable + "/.git")
	if fi, err := os.Lstat(git); err != nil || !fi.IsDir() {
		return []string{fmt.Sprintf(".git is no directory any more: %v", err)}
	}
	placeholders := []string{"commondir", "config.worktree", "modules", "worktrees", "objects/info/alternates"}
	for _, name := range placeholders {
		if b, _ := os.ReadFile(git + "/" + name); strings.Contains(string(b), "#!") {
			found = append(found, name+" is the guest's")
		}
	}
	return append(found, changed(w.before[dirWritable+"/.git"], snapshot(git), placeholders...)...)
}

func sharedDangerous(w *world) []string {
	w.leave()
	return dangerous(w.path(dirWritable))
}

// terminalText looks for text of the guest's in what carboy prints.
func terminalText(w *world) (found []string) {
	w.leave()
	raw := w.run(nil, "diff", "--raw", w.box)
	w.whole(strings.Contains(raw.stdout, "\x1b]0;owned"), "there is nothing to be escaped: %q", raw.stdout)
	for _, args := range [][]string{
		{"diff", w.box},
		{"diff", "--names", w.box},
		{"diff", "--stat", w.box},
		{"apply", "--dry-run", w.box},
		{"ls"},
		{"inspect", w.box},
		{"logs", w.box},
		{"cp", w.box + ":/workspace/no\x1b]0;owned\x07such", w.path("nowhere")},
		{"exec", w.box, "--", "/workspace/no\x1b]0;owned\x07such"},
	} {
		r := w.run(nil, args...)
		if i := strings.IndexFunc(r.stdout+r.stderr, commandsTerminal); i >= 0 {
			text := r.stdout + r.stderr
			found = append(found, fmt.Sprintf("carboy %s prints %q", args[0], text[i:min(len(text), i+12)]))
		}
	}
	return found
}

// commandsTerminal tells the runes that do more than being shown.
func commandsTerminal(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// guest runs a shell script in the workspace.
func (w *world) guest(format string, args ...any) {
	w.t.Helper()
	w.ok("exec", "--cwd", facts.Work, w.box, "--", "sh", "-c", fmt.Sprintf(format, args...))
}

// copyDangerous copies out all that was left, fifos and sockets among it.
func copyDangerous(w *world) []string {
	w.leave()
	dest := w.path("everything")
	w.run(nil, "cp", w.box+":/workspace", dest)
	b, err := os.ReadFile(dest + "/file")
	w.whole(string(b) == "changed\n", "cp copies nothing: %q, %v", b, err)
	found := dangerous(dest)
	for name, is := range snapshot(dest) {
		if to, ok := strings.CutPrefix(is, "link to "); ok && (filepath.IsAbs(to) || strings.HasPrefix(to, "..")) {
			found = append(found, fmt.Sprintf("%s is a link out, to %s", name, to))
		}
	}
	return found
}

// copyReadsLinks copies out a link that leads to the host's secret: what is
// read for it is read inside.
func copyReadsLinks(w *world) (found []string) {
	dest := w.path("copied-link")
	var copies []string
	for i, secret := range []string{host.facts.SecretFile, "/tmp/" + host.facts.Marker} {
		w.guest("ln -sfn %s secret-link", secret)
		through, plain := fmt.Sprintf("%s-%d-a", dest, i), fmt.Sprintf("%s-%d-b", dest, i)
		w.run(nil, "cp", w.box+":/workspace/secret-link", through)
		w.run(nil, "cp", w.box+":"+secret, plain)
		copies = append(copies, through, plain)
	}
	for _, name := range copies {
		fi, err := os.Lstat(name)
		if err != nil {
			continue
		}
		if b, _ := os.ReadFile(name); fi.Mode().IsRegular() && string(b) == host.secret {
			found = append(found, "the host's secret was copied out of the box to "+filepath.Base(name))
		}
	}
	return found
}

// copyFollowsLinks copies twice to one place: a link that the first copy
// brought must not lead the second one elsewhere.
func copyFollowsLinks(w *world) []string {
	dest := w.path("copied")
	w.guest("rm -rf tree && mkdir tree && ln -s %s tree/way && echo x >tree/file", w.path("outside"))
	w.run(nil, "cp", w.box+":/workspace/tree", dest)
	w.guest("rm tree/way && mkdir tree/way && echo x >tree/way/planted && rm -f tree/file && echo owned >tree/way/file")
	w.run(nil, "cp", w.box+":/workspace/tree/.", dest)
	// As an earlier copy or apply might have left it.
	linked := w.path("linked")
	if err := errors.Join(os.Mkdir(linked, 0o755), os.Symlink(w.path("outside"), linked+"/way")); err != nil {
		w.t.Fatal(err)
	}
	w.run(nil, "cp", w.box+":/workspace/tree/.", linked)
	w.guest("rm -rf tree")
	return changed(w.before["outside"], snapshot(w.path("outside")))
}

// plantLinks puts a link to a directory of the host's, and one to a file of it,
// into the host's own tree.
func (w *world) plantLinks() bool {
	if w.user == "root" {
		return false // who is shown no such tree
	}
	w.ok("exec", "--cwd", facts.Writable, w.box, "--", "ln", "-sfn", w.path("outside"), "way")
	w.ok("exec", "--cwd", facts.Writable, w.box, "--", "ln", "-sfn", w.path("outside/file"), "way-file")
	return true
}

// copyThroughPlantedLinks copies out of the box, to places in a tree that the
// box may write to.
func copyThroughPlantedLinks(w *world) []string {
	if !w.plantLinks() {
		return nil
	}
	w.guest("rm -rf tree && mkdir -p tree/way && echo owned | tee planted >tree/way/file && cp planted tree/way/planted")
	for _, to := range []string{"/way/planted", "/way", "/way/", "/way/.", "/way-file"} {
		w.run(nil, "cp", w.box+":/workspace/planted", w.path(dirWritable)+to)
	}
	w.run(nil, "cp", w.box+":/workspace/tree/.", w.path(dirWritable))
	w.guest("rm -rf tree planted")
	return changed(w.before["outside"], snapshot(w.path("outside")))
}

// copyOfPlantedLinks copies places in such a tree into the box.
func copyOfPlantedLinks(w *world) (found []string) {
	if !w.plantLinks() {
		return nil
	}
	for i, from := range []string{"/way/file", "/way", "/way/", "/way/.", "/way-file", "/."} {
		to := fmt.Sprintf("/tmp/taken-%d", i)
		w.run(nil, "cp", w.path(dirWritable)+from, w.box+":"+to)
		if r := w.run(nil, "exec", w.box, "--", "sh", "-c", "cat $(find "+to+" -type f)"); strings.Contains(r.stdout, "outside") {
			found = append(found, from+" brings the host's file in")
		}
	}
	return found
}

// applyHolds takes all changes, and looks for what the host would execute.
func applyHolds(w *world) (found []string) {
	w.leave()
	r := w.run(nil, "apply", w.box)
	b, err := os.ReadFile(w.path(dirWork + "/file"))
	w.whole(r.code == 0 && string(b) == "changed\n", "apply takes nothing: %+v; file is %q, %v", r, b, err)
	for _, name := range []string{".git", "deep/.git", ".vscode", ".envrc", "link-out", "link-etc"} {
		if fi, err := os.Lstat(w.path(dirWork + "/" + name)); err == nil {
			found = append(found, fmt.Sprintf("%s was applied: %v", name, fi.Mode()))
		}
	}
	return append(found, dangerous(w.path(dirWork))...)
}

// applyFollowsLinks has a link applied that its owner named, and then what
// the guest put in its place.
func applyFollowsLinks(w *world) []string {
	w.guest("rm -rf way && ln -s %s way", w.path("outside"))
	w.run(nil, "apply", "--force", w.box, "way")
	_, err := os.Readlink(w.path(dirWork + "/way"))
	w.whole(err == nil, "a link that was named is not applied: %v", err)
	w.guest("rm way && mkdir way && echo owned >way/file && echo x >way/planted")
	w.run(nil, "apply", "--force", w.box, "way/file", "way/planted")
	w.run(nil, "apply", "--force", w.box, "way", "way/file", "way/planted")
	return changed(w.before["outside"], snapshot(w.path("outside")))
}

// replacedDirectory lays another directory in the place of one that the box
// was given, while the box is stopped.
func replacedDirectory(w *world) []string {
	w.ok("stop", w.box)
	shared, aside := w.path(dirReadOnly), w.path("aside")
	if err := os.Rename(shared, aside); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Mkdir(shared, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "other"), []byte("not what was shared\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	r := w.run(nil, "start", w.box)
	var found []string
	if r.code == 0 {
		r = w.run(nil, "exec", w.box, "--", "cat", facts.ReadOnly+"/other")
		found = append(found, fmt.Sprintf("the box was started with another directory, and reads %q", r.stdout))
		w.ok("stop", w.box)
	}
	os.RemoveAll(shared)
	if err := os.Rename(aside, shared); err != nil {
		w.t.Fatal(err)
	}
	r = w.run(nil, "start", w.box)
	w.whole(r.code == 0, "with the directory back in its place: %+v", r)
	return found
}
