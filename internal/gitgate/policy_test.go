package gitgate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// asker answers what it is told to.
type asker struct {
	mu     sync.Mutex
	asked  []gitgate.Question
	answer gitgate.Answer
	err    error
	wait   chan struct{} // it answers when that is closed; nil: at once
}

// Ask implements gitgate.Asker.
func (a *asker) Ask(ctx context.Context, q gitgate.Question) (gitgate.Answer, error) {
	a.mu.Lock()
	a.asked = append(a.asked, q)
	answer, err, wait := a.answer, a.err, a.wait
	a.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return gitgate.Answer{}, ctx.Err()
		}
	}
	return answer, err
}

func (a *asker) set(answer gitgate.Answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.answer, a.err = nil, answer, err
}

// TestPolicy: what a policy is about is refused and named, and passes where it is allowed.
func TestPolicy(t *testing.T) {
	fresh := func(r *repo) { r.commit("a.txt", "a\n", "x") }
	tests := []struct {
		name   string
		strict gitgate.Policy
		lax    gitgate.Policy
		make   func(r *repo)
		push   []string
		says   []string
	}{
		{"read-only", gitgate.Policy{ReadOnly: true}, gitgate.Policy{}, fresh, []string{"HEAD:refs/heads/x"}, []string{"nothing may be pushed"}},
		{"protected", gitgate.Policy{Protected: []string{"refs/heads/ma*"}}, gitgate.Policy{Protected: []string{"refs/heads/m"}}, fresh, []string{"HEAD:main"}, []string{"protected"}},
		{"protected-among-others", gitgate.Policy{Protected: []string{"refs/heads/main"}}, gitgate.Policy{}, fresh, []string{"HEAD:main", "HEAD:x"}, []string{"protected", "another ref was refused"}},
		{"deletion", gitgate.Policy{}, gitgate.Policy{Deletions: gitgate.Allow}, func(*repo) {}, []string{":next"}, []string{"deleted ref next"}},
		{"forced", gitgate.Policy{}, gitgate.Policy{Forced: gitgate.Allow}, func(r *repo) { r.git("commit", "-q", "--amend", "-m", "other") }, []string{"+HEAD:main"}, []string{"forced ref main"}},
		{"moved-tag", gitgate.Policy{}, gitgate.Policy{Forced: gitgate.Allow}, fresh, []string{"+HEAD:refs/tags/old"}, []string{"forced ref tags/old"}},
		{"large-file", gitgate.Policy{MaxBlob: 1000}, gitgate.Policy{MaxBlob: 3000}, func(r *repo) { r.commit("a", strings.Repeat("a\n", 1000), "x") }, []string{"HEAD:x"}, []string{"a blob of", "may be"}},
		{"much", gitgate.Policy{MaxPush: 5000}, gitgate.Policy{}, func(r *repo) {
			r.commit("a", strings.Repeat("a\n", 1500), "x")
			r.commit("b", strings.Repeat("b\n", 1500), "x")
		}, []string{"HEAD:x"}, []string{"unpacked they have more"}},
		{"many-commits", gitgate.Policy{MaxCommits: 1}, gitgate.Policy{MaxCommits: 2}, func(r *repo) { fresh(r); r.commit("b", "b", "y") }, []string{"HEAD:x"}, []string{"2 commits that are new"}},
		{"many-refs", gitgate.Policy{MaxRefs: 1}, gitgate.Policy{MaxRefs: 2}, fresh, []string{"HEAD:x", "HEAD:y"}, []string{"2 refs at once"}},
		{"binary", gitgate.Policy{Binaries: gitgate.Deny}, gitgate.Policy{}, func(r *repo) { r.commit("a.bin", "a\x00b", "x") }, []string{"HEAD:x"}, []string{"binary a.bin"}},
		{"unscannable", gitgate.Policy{Unscannable: gitgate.Deny}, gitgate.Policy{Unscannable: gitgate.Allow}, func(r *repo) { r.commit("a.xz", "\xfd7zXZ\x00abc", "x") }, []string{"HEAD:x"}, []string{"unscannable a.xz", "compressed by xz"}},
		{"lfs", gitgate.Policy{Unscannable: gitgate.Deny}, gitgate.Policy{Unscannable: gitgate.Allow}, func(r *repo) {
			r.commit("a.psd", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "x")
		}, []string{"HEAD:x"}, []string{"a pointer of LFS"}},
		{"workflow", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) { r.commit(".github/workflows/ci.yml", "on: push\n", "x") }, []string{"HEAD:x"}, []string{"held back .github/workflows/ci.yml", "CI runs it"}},
		{"agents-rules", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) { r.commit("sub/AGENTS.md", "x\n", "x") }, []string{"HEAD:x"}, []string{"held back sub/AGENTS.md"}},
		{"workflow-gone-again", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.commit(".github/workflows/ci.yml", "on: push\n", "x")
			r.git("rm", "-q", ".github/workflows/ci.yml")
			r.git("commit", "-q", "-m", "y")
		}, []string{"HEAD:x"}, []string{"held back .github/workflows/ci.yml"}},
		{"link-led-out-once", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.link("l", "../../etc")
			r.link("l", "README")
		}, []string{"HEAD:x"}, []string{"held back l in"}},
		{"link-by-another", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.git("fetch", "-q", "origin", "ci")
			r.git("reset", "-q", "--hard", "FETCH_HEAD")
			r.link("l", "out/passwd")
		}, []string{"HEAD:ci"}, []string{"held back l in"}},
		{"workflow-removed", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.git("fetch", "-q", "origin", "ci")
			r.git("reset", "-q", "--hard", "FETCH_HEAD")
			r.git("rm", "-q", ".github/workflows/ci.yml")
			r.git("commit", "-q", "-m", "x")
		}, []string{"HEAD:ci"}, []string{"held back .github/workflows/ci.yml"}},
		{"workflow-of-another-branch", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(*repo) {
		}, []string{"origin/ci:main"}, []string{"held back .github/workflows/ci.yml"}},
		{"moved-there", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.commit(".gitlab-ci.yml", "hello\n", "x") // of a content that upstream has
		}, []string{"HEAD:x"}, []string{"held back .gitlab-ci.yml"}},
		{"drivers", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) { r.commit(".gitattributes", "* filter=x\n", "x") }, []string{"HEAD:x"}, []string{"held back .gitattributes"}},
		{"link-out", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			id, err := r.tryIn("../../etc", "hash-object", "-w", "--stdin")
			must(r.t, err)
			r.git("update-index", "--add", "--cacheinfo", "120000,"+id+",l")
			r.git("commit", "-q", "-m", "x")
		}, []string{"HEAD:x"}, []string{"held back l in"}},
		{"submodule", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.git("update-index", "--add", "--cacheinfo", "160000,"+r.git("rev-parse", "HEAD")+",sub")
			r.git("commit", "-q", "-m", "x")
		}, []string{"HEAD:x"}, []string{"held back sub in"}},
		{"ext-module", gitgate.Policy{}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.commit(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = ext::sh -c 'touch /tmp/x'\n", "x")
		}, []string{"HEAD:x"}, []string{"held back .gitmodules", "nobody can be"}},
		{"repository-within", gitgate.Policy{Held: gitgate.Deny}, gitgate.Policy{Held: gitgate.Allow}, func(r *repo) {
			r.write("d/objects/x", "")
			r.write("d/refs/x", "")
			r.commit("d/HEAD", "ref: x\n", "x")
		}, []string{"HEAD:x"}, []string{"held back d/HEAD in"}},
	}
	s := newServer(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits for disks and for processes
			strict := &world{t: t, server: s, up: bare(t)}
			strict.up.git("branch", "next", "main")
			strict.up.git("tag", "old", "main")
			if strings.Contains(tt.push[0], "ci") {
				strict.up.git("branch", "ci", ci(t, strict.up))
			}
			strict.serve(sshRemote(t, s, strict.up, tt.strict))
			lax := &world{t: t, server: s, up: strict.up}
			lax.serve(sshRemote(t, s, lax.up, tt.lax))
			agent := strict.clone("agent")
			before := strict.up.git("for-each-ref")
			tt.make(agent)
			contains(t, agent.refuses(append([]string{"origin"}, tt.push...)...), append(tt.says, "[remote rejected]")...)
			if after := strict.up.git("for-each-ref"); after != before {
				t.Errorf("upstream is %s, was %s", after, before)
			}
			agent.git(append([]string{"push", "-q", lax.url}, tt.push...)...)
			if strict.up.git("for-each-ref") == before {
				t.Error("allowed, it is not upstream")
			}
		})
	}
}

// ci makes a commit upstream that has a workflow, and a link that leads out.
func ci(t *testing.T, up *repo) string {
	blob, err := up.tryIn("on: push\n", "hash-object", "-w", "--stdin")
	must(t, err)
	out, err := up.tryIn("../../etc", "hash-object", "-w", "--stdin")
	must(t, err)
	tree := "100644 blob " + blob + "\tci.yml\n"
	for _, dir := range []string{"workflows", ".github", ""} {
		if dir == "" {
			tree += "120000 blob " + out + "\tout\n"
		}
		id, err := up.tryIn(tree, "mktree")
		must(t, err)
		if tree = "040000 tree " + id + "\t" + dir + "\n"; dir == "" {
			return up.git("commit-tree", "-p", "main", "-m", "ci", id)
		}
	}
	return ""
}

// TestAsk: a person is asked about what is to be asked, once, with what was found, and the
// push goes by the answer.
func TestAsk(t *testing.T) {
	a := &asker{}
	w := newWorld(t, gitgate.Policy{Secrets: gitgate.Ask}, func(c *gitgate.Config) { c.Asker = a })
	id := w.agent.commit(".github/workflows/ci.yml", "token "+secret+"\n", "x")
	a.set(gitgate.Answer{Reason: "not today"}, nil)
	contains(t, w.agent.refuses("origin", "HEAD:x"), "a person is asked", "a person said no: not today", "(github-pat) .github/workflows/ci.yml:1")
	if len(a.asked) != 1 || len(a.asked[0].Findings) != 2 || a.asked[0].Commits != 1 || a.asked[0].Updates[0] != (gitgate.Update{Ref: "refs/heads/x", New: id}) {
		t.Errorf("asked %+v", a.asked)
	}
	a.set(gitgate.Answer{Allow: true}, nil)
	w.agent.git("push", "-q", "origin", "HEAD:x")
	if w.ref("x") != id {
		t.Error("it is not upstream")
	}
}

// TestLongAsk: a client waits for a person for longer than it may be silent itself, and
// hears meanwhile that it is not forgotten. Where the machine is busy just then, and who
// pushes silent for too long itself, it may be for longer.
func TestLongAsk(t *testing.T) {
	var says string
	var err error
	for stall := 200 * time.Millisecond; stall <= 5*time.Second; stall *= 5 {
		if says, err = longAsk(t, stall); err == nil {
			contains(t, says, "a person said yes: at last")
			return
		}
	}
	t.Errorf("%v: %s", err, says)
}

// longAsk pushes what a person thinks about for five times as long as anybody may be silent.
func longAsk(t *testing.T, stall time.Duration) (says string, err error) {
	t.Helper()
	defer gitgate.TimesForTest(stall, stall/4)()
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) {
		c.Asker = askFunc(func(ctx context.Context, _ gitgate.Question) (gitgate.Answer, error) {
			select {
			case <-time.After(5 * stall):
				return gitgate.Answer{Allow: true, Reason: "at last"}, nil
			case <-ctx.Done():
				return gitgate.Answer{}, ctx.Err()
			}
		})
	})
	w.agent.commit(".envrc", "x\n", "x")
	return w.agent.try("push", "origin", "HEAD:x")
}

// TestAskDenied: nobody is asked about what is denied anyway.
func TestAskDenied(t *testing.T) {
	a := &asker{answer: gitgate.Answer{Allow: true}}
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { c.Asker = a })
	w.agent.commit(".github/workflows/ci.yml", "token "+secret+"\n", "x")
	contains(t, w.agent.refuses("origin", "HEAD:x"), "it has what may not be pushed")
	if len(a.asked) != 0 {
		t.Errorf("asked %+v", a.asked)
	}
}

// TestAskFailsClosed: where nobody can be asked, nothing passes.
func TestAskFailsClosed(t *testing.T) {
	a := &asker{err: errors.New("the daemon is away: token " + secret)}
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { c.Asker = a })
	w.agent.commit(".envrc", "x\n", "x")
	says := w.agent.refuses("origin", "HEAD:x")
	contains(t, says, "a person would have to be asked, and could not be")
	if strings.Contains(says, "daemon") {
		t.Errorf("it is told why: %s", says)
	}
	without := &world{t: t, server: w.server, up: w.up}
	without.serve(sshRemote(t, w.server, w.up, gitgate.Policy{}))
	contains(t, w.agent.refuses(without.url, "HEAD:x"), "nobody can be")
	if w.ref("x") != "" {
		t.Error("it is upstream")
	}
}

// TestFlood: many files of one kind hide none of another, and of a file the last version is
// named.
func TestFlood(t *testing.T) {
	a := &asker{}
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { c.Asker = a })
	const many = 60
	var in strings.Builder
	file := func(name, text string) {
		fmt.Fprintf(&in, "commit refs/heads/x\ncommitter A <a@b.example> 1 +0000\ndata 0\n")
		if in.Len() < 100 {
			fmt.Fprintf(&in, "from %s\n", w.ref("main"))
		}
		fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
	}
	file(".github/workflows/x.yml", "harmless")
	for i := range many {
		file(fmt.Sprintf("d%d/.npmrc", i), "x")
	}
	file(".github/workflows/x.yml", "on: push")
	_, err := w.agent.tryIn(in.String(), "fast-import", "--quiet")
	must(t, err)
	says := w.agent.refuses("origin", "x")
	contains(t, says, "held back .github/workflows/x.yml in ", "more: held back: ")
	if len(a.asked) != 1 {
		t.Fatalf("asked %d times", len(a.asked))
	}
	q := a.asked[0]
	last := gitgate.Finding{}
	for _, f := range q.Findings {
		if f.Path == ".github/workflows/x.yml" {
			last = f
		}
	}
	if want := w.agent.git("rev-parse", "x"); last.Commit != want || last.Blob != w.agent.git("rev-parse", "x:"+last.Path) {
		t.Errorf("named %+v, want it in %s", last, want)
	}
	n := 0
	for _, c := range q.Counts {
		n += c.N
	}
	if n != many+1 || len(q.Findings) != gitgate.MaxFindings {
		t.Errorf("%d are named of %d, want of %d", len(q.Findings), n, many+1)
	}
}

// TestProtected: a pattern protects all that it says, and one that protects nothing is refused.
func TestProtected(t *testing.T) {
	for pattern, tt := range map[string]struct{ yes, no []string }{
		"refs/heads/*":          {[]string{"refs/heads/a"}, []string{"refs/heads/a/b", "refs/tags/a"}},
		"refs/heads/**":         {[]string{"refs/heads/a", "refs/heads/a/b/c"}, []string{"refs/tags/a"}},
		"refs/heads/release/**": {[]string{"refs/heads/release/a", "refs/heads/release/a/b"}, []string{"refs/heads/release", "refs/heads/releases/a"}},
		"refs/**":               {[]string{"refs/tags/a", "refs/heads/a/b"}, nil},
		"refs/heads/r*/**":      {[]string{"refs/heads/release/a/b"}, []string{"refs/heads/other/release/a"}},
	} {
		for _, ref := range tt.yes {
			if is, err := gitgate.ProtectsForTest(pattern, ref); !is || err != nil {
				t.Errorf("%s does not protect %s: %v", pattern, ref, err)
			}
		}
		for _, ref := range tt.no {
			if is, err := gitgate.ProtectsForTest(pattern, ref); is || err != nil {
				t.Errorf("%s protects %s: %v", pattern, ref, err)
			}
		}
	}
	for _, pattern := range []string{"main", "heads/main", "release/*", "refs/main", "refs/heads/**/x", "refs/heads/[", "", "**"} {
		if _, err := gitgate.ProtectsForTest(pattern, "refs/heads/main"); err == nil {
			t.Errorf("%q is taken", pattern)
		}
	}
}

// TestAskedAlone: while a person is asked about a push, and others wait for it, fetches are
// answered.
func TestAskedAlone(t *testing.T) {
	defer gitgate.ServingForTest(1)()
	asked, wait := make(chan struct{}), make(chan struct{})
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) {
		c.Asker = askFunc(func(ctx context.Context, _ gitgate.Question) (gitgate.Answer, error) {
			close(asked)
			select {
			case <-wait:
				return gitgate.Answer{Allow: true}, nil
			case <-ctx.Done():
				return gitgate.Answer{}, ctx.Err()
			}
		})
	})
	id := w.agent.commit(".envrc", "x\n", "x")
	other := w.clone("other")
	plain := other.commit("a", "a", "a")
	var all sync.WaitGroup
	all.Go(func() { w.agent.git("push", "-q", "origin", "HEAD:x") })
	<-asked
	all.Go(func() { other.git("push", "-q", "origin", "HEAD:y") })
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(time.Minute))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/info/refs?service=git-upload-pack", nil)
	must(t, err)
	if res, err := http.DefaultClient.Do(req); err != nil {
		t.Error(err)
	} else {
		_ = res.Body.Close()
	}
	close(wait)
	all.Wait()
	if w.ref("x") != id || w.ref("y") != plain {
		t.Errorf("upstream has %s and %s", w.ref("x"), w.ref("y"))
	}
}
