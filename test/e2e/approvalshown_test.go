package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Each request with a body is asked about by itself, and what some server takes for
// another request is not asked about.
func TestAskShowsWhatGoes(t *testing.T) {
	t.Parallel()
	w, h, name := askBox(t, "process", "60s")
	first := h.asking(name, "curl", "-sS", "-d", "amount=1", askURL)
	h.waits(1)
	second := h.asking(name, "curl", "-sS", "-d", "amount=1000", askURL)
	list := h.waits(2)
	for i, q := range list {
		if q.ID < 100_000_000 || q.Waiting != 1 || !q.Body {
			t.Errorf("asked: %+v", q)
		}
		h.ok("approve", []string{"allow", "deny"}[i], fmt.Sprint(q.ID))
	}
	if r := <-first; !strings.Contains(r.stdout, "hello") {
		t.Errorf("allowed: %+v", r)
	}
	refusedWith(t, <-second, "approval_denied")
	if got := w.received("api.example.com"); len(got) != 1 {
		t.Errorf("the server received %+v", got)
	}
	for _, field := range []string{"X-HTTP-Method-Override: DELETE", "X-Original-URL: /admin/users"} {
		out := h.ok("exec", name, "--", "curl", "-sS", "-H", field, askURL)
		if !strings.Contains(out, "request_refused") || !strings.Contains(out, "makes it another request to some servers") {
			t.Errorf("%s: %s", field, out)
		}
	}
	if list := h.waitsNow(); len(list) != 0 {
		t.Errorf("asked: %+v", list)
	}
}

// A rule that is about an address has a person see that, whatever the name, and what
// is allowed goes there alone.
func TestAskAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, a := range []string{worldA, worldB} {
		l := w.listen(a + ":18999")
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("hello\n")) }))
		}()
	}
	h := w.home()
	name := h.create("--isolation", "process", "--policy", h.write("policy.yaml", fmt.Sprintf(`
rules:
  - {id: api, action: ask, addresses: [%s, %s], ports: [18999]}
`, worldA, worldB)))
	get := func(address string) <-chan result {
		return h.asking(name, "curl", "-sS", "-H", "Host: github.com:18999", "http://"+address+":18999/hh")
	}
	held := get(worldA)
	q := h.waits(1)[0]
	if q.What != "GET http://github.com:18999/hh to "+worldA || q.Address != worldA {
		t.Errorf("asked: %+v", q)
	}
	if out := h.ok("approve", "show", fmt.Sprint(q.ID)); strings.Contains(out, "hosts") || !strings.Contains(out, "- "+worldA) || strings.Contains(out, worldB) {
		t.Errorf("always would write: %s", out)
	}
	h.ok("approve", "allow", "--scope", "sandbox", fmt.Sprint(q.ID))
	if r := <-held; r.stdout != "hello\n" {
		t.Errorf("allowed: %+v", r)
	}
	held = get(worldB)
	if q = h.waits(1)[0]; q.Address != worldB {
		t.Errorf("asked: %+v", q)
	}
	h.ok("approve", "deny", fmt.Sprint(q.ID))
	refusedWith(t, <-held, "approval_denied")
}
