package gitgate_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
)

// asked keeps what a person is asked, and says yes.
type asked struct {
	mu  sync.Mutex
	all []gitgate.Question
}

func (a *asked) Ask(_ context.Context, q gitgate.Question) (gitgate.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, q)
	return gitgate.Answer{Allow: true}, nil
}

// TestShown: a person who is asked about a push sees its commits and what they change, but for the parts that seem to
// have a secret, and of much the beginning.
func TestShown(t *testing.T) {
	a := &asked{}
	w := newWorld(t, gitgate.Policy{Secrets: gitgate.Ask}, func(c *gitgate.Config) { c.Asker = a })
	w.agent.commit("plain.txt", "a plain line\n", "first of two")
	w.agent.commit("conf/token.txt", "token "+secret+"\n", "use "+secret)
	w.agent.git("push", "-q", "origin", "HEAD")
	w.agent.commit(".github/workflows/x.yml", strings.Repeat("run: all of it\n", 10_000), "much")
	w.agent.git("push", "-q", "origin", "HEAD")
	if len(a.all) != 2 {
		t.Fatalf("asked %d times", len(a.all))
	}
	q := a.all[0]
	contains(t, q.Diff, "+a plain line", "first of two", "diff --git a/plain.txt", "conf/token.txt", "not shown: it seems to have a secret")
	if strings.Contains(q.Diff, secret[:20]) || q.Cut {
		t.Errorf("cut: %t, or it has the secret: %s", q.Cut, q.Diff)
	}
	if len(q.List) != 2 || q.List[0].Subject != "first of two" || q.List[0].Author != "A <a@b.example>" || strings.Contains(q.List[1].Subject, secret[:20]) {
		t.Errorf("commits: %+v", q.List)
	}
	if q = a.all[1]; !q.Cut || len(q.Diff) > 64<<10 || !strings.Contains(q.Diff, "+run: all of it") {
		t.Errorf("of much: cut: %t, %d bytes", q.Cut, len(q.Diff))
	}
}

// TestShownRefs: the name of a ref that seems to have a secret is told to nobody, be it asked about or refused.
func TestShownRefs(t *testing.T) {
	a := &asked{}
	for _, policy := range []gitgate.Policy{{Secrets: gitgate.Ask}, {}, {ReadOnly: true}} {
		w := newWorld(t, policy, func(c *gitgate.Config) { c.Asker = a })
		w.agent.commit("a", "a", "a")
		_, _ = w.agent.try("push", "-q", "origin", "HEAD:refs/heads/"+secret) // it passes or not
		for _, u := range w.events.all[len(w.events.all)-1].Updates {
			if strings.Contains(u.Ref, secret) || u.Ref == "" {
				t.Errorf("%+v: its owner is told %+v", policy, u)
			}
		}
	}
	if q := a.all[0]; len(q.Shown) != 1 || strings.Contains(q.Shown[0].String(), secret[:20]) || !strings.Contains(q.Updates[0].Ref, secret) {
		t.Errorf("asked about: %+v, shown: %+v", q.Updates, q.Shown)
	}
}

// TestHeldIsShown: whatever else a push changes, a person sees what it is that they are asked about.
func TestHeldIsShown(t *testing.T) {
	a := &asked{}
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { c.Asker = a })
	w.agent.commit("much.txt", strings.Repeat("a line of it\n", 9_000), "much")
	w.agent.commit(".github/workflows/x.yml", "run: this\n", "held")
	w.agent.git("push", "-q", "origin", "HEAD")
	if q := a.all[0]; !q.Cut || len(q.Diff) > 64<<10 || !strings.Contains(q.Diff, "+run: this") {
		t.Errorf("cut: %t, %d bytes: %.300s", q.Cut, len(q.Diff), q.Diff)
	}
}

// TestClose: a gate that ends serves nothing any more, and its directory is another's.
func TestClose(t *testing.T) {
	w := newWorld(t, gitgate.Policy{})
	must(t, w.gate.Close())
	if out, err := w.agent.try("fetch"); err == nil || !strings.Contains(out, "503") {
		t.Errorf("a gate that has ended: %v, %s", err, out)
	}
}

// noise is text of so many bytes that gets no smaller than half of it.
func noise(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n/2)
	_, err := rand.Read(b)
	must(t, err)
	return hex.EncodeToString(b)
}

// TestMaxDisk: what upstream sends and what is pushed takes no more than there may be.
func TestMaxDisk(t *testing.T) {
	w := newWorld(t, gitgate.Policy{}, func(c *gitgate.Config) { c.MaxDisk = 64 << 10 })
	w.agent.commit("big", noise(t, 256<<10), "big")
	contains(t, w.agent.refuses("origin", "HEAD"), "git gate: up: ")
	other := w.clone("other")
	other.commit("big", noise(t, 256<<10), "big")
	other.git("push", "-q", w.up.dir, "HEAD")
	if out, err := w.agent.try("fetch"); err == nil {
		t.Errorf("a mirror takes more than it may: %s", out)
	}
}
