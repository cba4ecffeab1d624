package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/long"
)

// hookAt has upstream wait in a hook: it makes the file "in", and goes on when "out" is read from.
func (f *forge) hookAt(t *testing.T, name string) (in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	must(t, unix.Mkfifo(out, 0o600))
	must(t, os.WriteFile(filepath.Join(f.up, "hooks", name), []byte("#!/bin/sh\ncat >/dev/null\n: >"+in+"\necho on >"+out+"\n"), 0o755))
	return in, out
}

// TestGitGateKilled: a daemon or an egress gate that is killed at any point of a push leaves upstream as before or as
// asked; who pushed is told that it failed, and the next push goes through and says which it was. make test kills an
// egress gate once.
func TestGitGateKilled(t *testing.T) {
	t.Parallel()
	for who, kill := range map[string]func(*home){"daemon": (*home).killDaemon, "egress-gate": (*home).killGate} {
		for _, at := range [][3]string{
			{"asked", "", ".github/workflows/x.yml"}, {"before-it-takes-it", "pre-receive", "a"}, {"after-it-took-it", "post-receive", "b"},
		} {
			if who == "egress-gate" && at[0] != "before-it-takes-it" && !long.On() {
				continue
			}
			t.Run(who+"/"+at[0], func(t *testing.T) {
				t.Parallel() // git waits for a minute for a gate that was killed
				w := newWorld(t)
				f := newForge(t, w, w.home())
				f.bottle("process", "", f.byKey())
				name := f.sandbox()
				f.killedAt(t, name, at[0], at[1], at[2], kill)
				until(t, func() bool { return len(f.h.waitsNow()) == 0 }) // nobody waits for a question any more
				f.h.ok("rm", "-f", name)
			})
		}
	}
}

// killedAt pushes a file, kills something while upstream waits in a hook, or a person is asked where there is none, and
// pushes once more. Upstream is as asked in the end where it waited.
func (f *forge) killedAt(t *testing.T, name, point, hook, file string, kill func(*home)) {
	t.Helper()
	before := f.refs()
	var in, out string
	if hook != "" {
		in, out = f.hookAt(t, hook)
	}
	done := f.h.asking(name, "sh", "-c", f.clone("mkdir -p .github/workflows && echo "+point+" >"+file+" && git add -A . && git commit -q -m "+point+" && git push origin HEAD"))
	if hook == "" {
		f.h.waits(1)
	} else {
		until(t, func() bool { _, err := os.Stat(in); return err == nil })
	}
	kill(f.h)
	if hook != "" {
		must(t, os.Remove(filepath.Join(f.up, "hooks", hook)))
		_, err := os.ReadFile(out) // it goes on
		must(t, err)
	}
	if r := <-done; r.code == 0 {
		t.Errorf("%s: who pushed is not told: %+v", point, r)
	}
	if hook != "" {
		until(t, func() bool { return f.git("-C", f.up, "log", "-1", "--format=%s", "main") == point })
	} else if got := f.refs(); got != before {
		t.Errorf("%s: upstream has\n%s\nwant\n%s", point, got, before)
	}
	until(t, func() bool { return f.sh(name, "cd /home/user/app && git fetch -q").code == 0 }) // another gate comes in a while
	next := f.works(name, "cd /home/user/app && git status -sb")
	if hook != "" && !strings.Contains(next, "main...origin/main\n") {
		t.Errorf("%s: git does not see that it was pushed: %s", point, next)
	}
	f.works(name, f.clone("echo "+point+" >then && git add -A . && git commit -q -m then-"+point+" && git push -q origin HEAD"))
}

// TestGitGateShared: two sandboxes work on one repository at once, and both go on after the daemon was killed. Each has
// its own mirror, which goes with it.
func TestGitGateShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := newForge(t, w, w.home())
	f.bottle("process", "", f.byKey())
	names := []string{f.sandbox(), f.sandbox()}
	push := func(branch string) (pushes []<-chan result) {
		for i, name := range names {
			at := branch + string(rune('a'+i))
			pushes = append(pushes, f.h.asking(name, "sh", "-c", f.clone("echo "+at+" >"+at+" && git add . && git commit -q -m "+at+" && git push -q origin HEAD:refs/heads/"+at)))
		}
		return pushes
	}
	for _, done := range push("one-") {
		if r := <-done; r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
	f.h.killDaemon()
	for _, done := range push("two-") {
		if r := <-done; r.code != 0 {
			t.Errorf("after the daemon was killed: %+v", r)
		}
	}
	if refs := f.refs(); strings.Count(refs, "refs/heads/") != 5 {
		t.Errorf("upstream has\n%s", refs)
	}
	for i, name := range names {
		if n := len(f.h.gateFiles()); n != 2*(len(names)-i) {
			t.Errorf("%d directories of gates and mirrors: %q", n, f.h.gateFiles())
		}
		f.h.ok("rm", "-f", name)
	}
}
