package gitgate_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
)

// TestFetch: what an agent fetches is what upstream has at that moment, by each version of
// the protocol, and with upstream's HEAD.
func TestFetch(t *testing.T) {
	w := &world{t: t, server: newServer(t), up: bare(t)}
	w.up.git("branch", "next", "main")
	w.up.git("symbolic-ref", "HEAD", "refs/heads/next")
	w.serve(sshRemote(t, w.server, w.up, gitgate.Policy{}))
	for _, version := range []string{"0", "1", "2"} {
		c := w.clone("v"+version, "-c", "protocol.version="+version)
		if got := c.git("symbolic-ref", "HEAD"); got != "refs/heads/next" {
			t.Errorf("version %s: HEAD is %s", version, got)
		}
		if got, want := c.git("rev-parse", "HEAD"), w.ref("next"); got != want {
			t.Errorf("version %s: %s, want %s", version, got, want)
		}
		c.git("fsck", "--strict")
	}
}

// TestPush: what an agent pushes is upstream, and nothing else is changed.
func TestPush(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	id := w.agent.commit("a.txt", "one\n", "say one")
	w.agent.git("push", "-q", "origin", "HEAD:refs/heads/fix")
	if got := w.ref("refs/heads/fix"); got != id {
		t.Errorf("%s, want %s", got, id)
	}
	w.agent.git("tag", "-a", "-m", "a tag", "v1")
	w.agent.git("push", "-q", "origin", "main", "v1")
	if got := w.ref("refs/tags/v1^{commit}"); got != id || w.ref("main") != id {
		t.Errorf("%s and %s, want %s", got, w.ref("main"), id)
	}
	w.up.git("fsck", "--strict")
}

// TestSHA256: a repository that names its objects by SHA-256 passes as others do.
func TestSHA256(t *testing.T) {
	w := &world{t: t, server: newServer(t), up: bare(t, "--object-format=sha256")}
	w.serve(sshRemote(t, w.server, w.up, gitgate.Policy{}))
	c := w.clone("c")
	id := c.commit("a", "a", "a")
	c.git("push", "-q")
	if len(id) != 64 || w.ref("main") != id {
		t.Errorf("%s, want %s", w.ref("main"), id)
	}
	contains(t, func() string { c.commit("b", "token "+secret, "b"); return c.refuses() }(), "(github-pat) b:1")
}

// TestEmpty: an upstream that has nothing yet is cloned, and gets its first commit.
func TestEmpty(t *testing.T) {
	up := &repo{t: t, dir: t.TempDir()}
	up.git("init", "-q", "--bare", "-b", "main")
	w := &world{t: t, server: newServer(t), up: up}
	w.serve(sshRemote(t, w.server, w.up, gitgate.Policy{}))
	c := w.clone("c")
	id := c.commit("a", "a", "a")
	c.git("push", "-q", "origin", "HEAD:main")
	if w.ref("main") != id {
		t.Errorf("%s, want %s", w.ref("main"), id)
	}
}

// TestMirror: what upstream removes is removed from the mirror, and many packs become one,
// of which nothing is lacking.
func TestMirror(t *testing.T) {
	const most = 3
	defer gitgate.MaxPacksForTest(most)()
	dir := ""
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { dir = c.Dir })
	direct := &repo{t: t, dir: t.TempDir()}
	direct.git("clone", "-q", w.up.dir, ".")
	for i := range 2 * most {
		branch := fmt.Sprintf("refs/heads/b%d", i)
		direct.commit("f", branch, branch)
		direct.git("push", "-q", "origin", "HEAD:"+branch)
		w.agent.git("fetch", "-q", "--prune")
		direct.git("push", "-q", "origin", ":"+branch)
	}
	direct.git("push", "-q", "origin", "HEAD:last")
	w.agent.git("fetch", "-q", "--prune")
	if got := w.agent.git("for-each-ref", "--format=%(refname:short)", "refs/remotes/origin/b*"); got != "" {
		t.Errorf("the agent has %s", got)
	}
	packs, err := filepath.Glob(filepath.Join(dir, "up", "git", "objects/pack/*.pack"))
	if err != nil || len(packs) > most {
		t.Errorf("%v, %v", packs, err)
	}
	w.clone("c").git("fsck", "--strict")
}

// TestEvents: what became of fetches and pushes is told to who holds the gate.
func TestEvents(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	w.agent.commit("a", "token "+secret, "a")
	w.agent.refuses()
	w.agent.git("reset", "-q", "--hard", "HEAD~1")
	w.agent.commit("b", "b", "b")
	w.agent.git("push", "-q")
	w.agent.git("fetch", "-q") // there is nothing to fetch
	direct := &repo{t: t, dir: t.TempDir()}
	direct.git("clone", "-q", w.up.dir, ".")
	direct.commit("c", "c", "c")
	direct.git("push", "-q")
	w.agent.git("fetch", "-q")
	w.events.mu.Lock()
	defer w.events.mu.Unlock()
	var got []string
	for _, e := range w.events.all {
		got = append(got, fmt.Sprint(e.Service, " ", e.Outcome, " ", len(e.Updates), " ", len(e.Findings)))
	}
	if want := "[fetch done 0 0 push refused 1 1 push done 1 0 fetch done 0 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
