package gitgate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
)

// secret is one of nobody's, put together here so that this file has none.
var secret = "gh" + "p_" + "x7Kq2mV9sT4wB8nR1cY6uJ3eL5aZ0dHf2GiP"

func wide(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

func gz(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	must(t, z.Close())
	return b.String()
}

// hidden are ways to have a secret in a push. Each returns what is pushed.
var hidden = []struct {
	name string
	says string // where it is
	hide func(t *testing.T, r *repo) string
}{
	{"in-a-file", "conf/a.txt:2 in ", func(_ *testing.T, r *repo) string {
		r.commit("conf/a.txt", "\ntoken "+secret+"\n", "x")
		return "HEAD:refs/heads/x"
	}},
	{"deleted-later", "a.txt:1 in ", func(_ *testing.T, r *repo) string {
		r.commit("a.txt", "token "+secret+"\n", "x")
		r.git("rm", "-q", "a.txt")
		r.git("commit", "-q", "-m", "y")
		return "HEAD:refs/heads/x"
	}},
	{"in-a-merge", "README:1 in ", func(_ *testing.T, r *repo) string {
		r.git("switch", "-q", "-c", "side")
		r.commit("b", "b", "b")
		r.git("switch", "-q", "main")
		r.commit("c", "c", "c")
		r.git("merge", "-q", "--no-commit", "side")
		r.commit("README", "token "+secret+"\n", "merged")
		return "HEAD:refs/heads/x"
	}},
	{"in-a-message", "in the commit itself", func(_ *testing.T, r *repo) string {
		r.commit("a", "a", "use "+secret+" for it")
		return "HEAD:refs/heads/x"
	}},
	{"in-an-author", "in the commit itself", func(_ *testing.T, r *repo) string {
		r.git("commit", "-q", "--allow-empty", "-m", "x", "--author", secret+" <a@b.example>")
		return "HEAD:refs/heads/x"
	}},
	{"in-a-tag", "in the tag itself", func(_ *testing.T, r *repo) string { r.git("tag", "-a", "-m", "use "+secret, "v1"); return "v1" }},
	{"in-a-note", ":1 in ", func(_ *testing.T, r *repo) string {
		r.git("notes", "add", "-m", "use "+secret)
		return "refs/notes/commits"
	}},
	{"in-a-name", "in the name of a file", func(_ *testing.T, r *repo) string { r.commit("d/"+secret+".txt", "a", "x"); return "HEAD:refs/heads/x" }},
	{"in-a-directory", "in the name of a file", func(_ *testing.T, r *repo) string { r.commit(secret+"/x", "a", "x"); return "HEAD:refs/heads/x" }},
	{"in-a-ref", "in the name of a ref", func(_ *testing.T, _ *repo) string { return "HEAD:refs/heads/" + secret }},
	{"in-a-link", "l:1 in ", func(_ *testing.T, r *repo) string {
		id, err := r.tryIn("x/"+secret, "hash-object", "-w", "--stdin")
		must(r.t, err)
		r.git("update-index", "--add", "--cacheinfo", "120000,"+id+",l")
		r.git("commit", "-q", "-m", "x")
		return "HEAD:refs/heads/x"
	}},
	{"utf-16", "a.txt:2 in ", func(_ *testing.T, r *repo) string {
		r.commit("a.txt", wide("\ntoken "+secret+"\n"), "x")
		return "HEAD:refs/heads/x"
	}},
	{"base64", "in base64", func(_ *testing.T, r *repo) string {
		r.commit("a.txt", base64.StdEncoding.EncodeToString([]byte("token "+secret+"\n")), "x")
		return "HEAD:refs/heads/x"
	}},
	{"gzip", "in gzip", func(t *testing.T, r *repo) string {
		r.commit("a.gz", gz(t, "token "+secret+"\n"), "x")
		return "HEAD:refs/heads/x"
	}},
	{"base64-in-a-message", "in the commit itself, in base64", func(_ *testing.T, r *repo) string {
		r.commit("a", "a", base64.StdEncoding.EncodeToString([]byte("token "+secret+"\n")))
		return "HEAD:refs/heads/x"
	}},
	{"lock-file-and-comment", "package-lock.json:1 in ", func(_ *testing.T, r *repo) string {
		r.commit("package-lock.json", "token "+secret+" // gitleaks:allow\n", "x")
		return "HEAD:refs/heads/x"
	}},
}

// TestSecrets: a push that has a secret anywhere is refused, and the client is told where,
// and not what. By a policy that allows them the same pushes pass.
func TestSecrets(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	lax := &world{t: t, server: w.server, up: bare(t)}
	lax.serve(sshRemote(t, w.server, lax.up, gitgate.Policy{Secrets: gitgate.Allow, Unscannable: gitgate.Allow, Forced: gitgate.Allow}))
	before := w.up.git("for-each-ref")
	t.Run("hidden", func(t *testing.T) {
		for _, h := range hidden {
			t.Run(h.name, func(t *testing.T) {
				t.Parallel() // it waits for disks and for processes
				agent := w.clone(h.name)
				agent.t = t
				what := strings.Replace(h.hide(t, agent), "HEAD:refs/heads/x", "HEAD:refs/heads/"+h.name, 1)
				says := agent.refuses("origin", what)
				contains(t, says, "remote: git gate: up: refused", "(github-pat)", h.says, "[remote rejected]")
				if told := strings.ReplaceAll(says, "-> "+secret, ""); strings.Contains(told, secret) && h.name != "in-a-ref" {
					t.Errorf("it is told: %s", says)
				}
				if out, err := agent.try("push", "-q", "--force", lax.url, what); err != nil {
					t.Errorf("where they are allowed: %v: %s", err, out)
				}
			})
		}
	})
	if after := w.up.git("for-each-ref"); after != before {
		t.Errorf("upstream is %s, was %s", after, before)
	}
	out, err := w.up.try("cat-file", "--batch-all-objects", "--batch-check")
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("upstream has other objects: %v: %s", err, out)
	}
}

// TestKnownSecret: who changes a file that has upstream had a secret in all along gives
// nothing away; who copies it elsewhere does.
func TestKnownSecret(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	direct := &repo{t: t, dir: t.TempDir()}
	direct.git("clone", "-q", w.up.dir, ".")
	direct.commit("test.key", "token "+secret+"\n", "an example")
	direct.git("push", "-q")
	w.agent.git("pull", "-q")
	w.agent.commit("test.key", "token "+secret+"\nanother line\n", "more")
	w.agent.git("push", "-q")
	w.agent.commit("other.key", "token "+secret+"\nyet another\n", "a copy")
	contains(t, w.agent.refuses(), "other.key:1")
	w.agent.git("reset", "-q", "--hard", "origin/main")

	var many strings.Builder // hides one more behind those that upstream has
	for c := 'a'; c < 'z'; c++ {
		many.WriteString("token " + secret[:len(secret)-1] + string(c) + "\n")
	}
	direct.git("pull", "-q")
	direct.commit("many.key", many.String(), "examples")
	direct.git("push", "-q")
	w.agent.git("pull", "-q")
	w.agent.commit("many.key", many.String()+"token "+secret+"\n", "one more")
	contains(t, w.agent.refuses(), "many.key", "and more of them")
}

// TestOwnSecret: what the gate knows of its sandbox's secrets is not pushed, by whatever name and encoding, and nobody who
// is asked about a push is shown it. Where it can't be had, nothing is pushed.
func TestOwnSecret(t *testing.T) {
	own := "a plain pass phrase, by no rule"
	a := &asked{}
	var known error
	w := newWorld(t, gitgate.Policy{Secrets: gitgate.Ask}, func(c *gitgate.Config) {
		c.Asker = a
		c.Known = func(context.Context) ([]scan.Known, error) {
			return []scan.Known{{Name: "PHRASE", Value: []byte(own)}}, known
		}
	})
	w.agent.commit("a.txt", "x\n"+own+"\n", "x")
	w.agent.commit("b.txt", base64.StdEncoding.EncodeToString([]byte(own)), own)
	out := w.agent.git("push", "origin", "HEAD")
	contains(t, out, "secret (of this sandbox: PHRASE) a.txt:2 in ", "secret (of this sandbox: PHRASE) b.txt:1 in ", "in the commit itself", "in another spelling")
	q := a.all[0]
	if told := out + q.Diff + q.List[1].Subject; strings.Contains(told, own) {
		t.Errorf("it is told: %s", told)
	}
	known = errors.New("/home/me/phrase is not there")
	w.agent.commit("c.txt", "x", "x")
	if says := w.agent.refuses("origin", "HEAD"); !strings.Contains(says, "nobody can say whether it is in this push") || strings.Contains(says, "/home/me") {
		t.Errorf("where it can't be read: %s", says)
	}
	e := w.events.all[len(w.events.all)-1]
	contains(t, e.Why, "/home/me/phrase is not there")
	if len(e.Updates) > 0 {
		t.Errorf("refs whose names nobody could look at are told: %+v", e.Updates)
	}
}
