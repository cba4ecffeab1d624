package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/test/patience"
)

const askPolicy = `
rules:
  - id: api
    action: ask
    hosts: [api.example.com]
  - id: read
    hosts: [api.example.com]
    matches: [{methods: [GET], paths: [{value: /open}]}]
ask: {timeout: %s}
`

// waits returns the questions that are open, once they are n.
func (h *home) waits(n int) (list []api.Approval) {
	h.t.Helper()
	until(h.t, func() bool {
		list = nil
		if err := json.Unmarshal([]byte(h.ok("approve", "ls", "--json")), &list); err != nil {
			h.t.Fatal(err)
		}
		return len(list) == n
	})
	return list
}

// asking runs a command that has to wait for an answer. What fails is the zero result
// but for its code and stderr.
func (h *home) asking(name string, args ...string) <-chan result {
	h.t.Helper()
	done := make(chan result, 1)
	go func() {
		r := result{code: -1}
		defer func() { done <- r }()
		ctx, cancel := context.WithTimeout(context.Background(), patience.For(5*time.Minute))
		defer cancel()
		cmd := h.command(ctx, append([]string{"exec", name, "--"}, args...)...)
		var out, errb bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errb
		err := h.start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		r.stdout, r.stderr = out.String(), errb.String()
		exit, exited := errors.AsType[*exec.ExitError](err)
		switch {
		case exited:
			r.code = exit.ExitCode()
		case err != nil:
			r.stderr += err.Error()
		default:
			r.code = 0
		}
	}()
	return done
}

// askBox makes a sandbox whose policy asks, in a world with the API.
func askBox(t *testing.T, wall, timeout string) (*world, *home, string) {
	t.Helper()
	w := newWorld(t)
	w.https("api.example.com", worldA, nil)
	h := w.home()
	return w, h, h.create("--isolation", wall, "--policy", h.write("policy.yaml", fmt.Sprintf(askPolicy, timeout)))
}

const askURL = "https://api.example.com/v1/items"

// A request waits; allowed, it passes, and one that differs is asked about anew.
func TestAskHolds(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		w, h, name := askBox(t, wall, "120s")
		first := h.asking(name, "curl", "-sS", "-X", "POST", "-d", "x=1", askURL)
		q := h.waits(1)[0]
		if q.What != "POST "+askURL || q.Rule != "api" || q.Sandbox != name || q.Waiting != 1 {
			t.Errorf("asked: %+v", q)
		}
		if got := w.received("api.example.com"); len(got) != 0 {
			t.Fatalf("a server received what waits: %+v", got)
		}
		if out := h.ok("approve", "allow", fmt.Sprint(q.ID)); out != fmt.Sprintf("allowed: POST %s (rule api, sandbox %s), and what it carries, which is not shown\n", askURL, name) {
			t.Errorf("allow said %q", out)
		}
		if r := <-first; r.code != 0 || r.stdout != "hello from api.example.com\n" {
			t.Fatalf("what was allowed: %+v", r)
		}
		// The same is asked again, and what differs in its query too.
		again := h.asking(name, "curl", "-sS", "-X", "POST", "-d", "x=1", askURL+"?all=1")
		q2 := h.waits(1)[0]
		if q2.ID == q.ID || q2.What != "POST "+askURL+"?all=1" {
			t.Errorf("asked: %+v", q2)
		}
		h.ok("approve", "deny", "--reason", "not today", fmt.Sprint(q2.ID))
		refusedWith(t, <-again, "approval_denied")
		// What a rule allows is not asked.
		if out := h.ok("exec", name, "--", "curl", "-sS", "https://api.example.com/open"); out != "hello from api.example.com\n" {
			t.Errorf("allowed by a rule: %q", out)
		}
		if got := w.received("api.example.com"); len(got) != 2 {
			t.Errorf("the server received %+v", got)
		}
		h.toldOf(t, name, q.ID, q2.ID)
	})
}

// toldOf looks for one question that was allowed and one that was denied, in every
// record.
func (h *home) toldOf(t *testing.T, name string, allowed, denied int64) {
	t.Helper()
	events := h.ok("logs", name)
	for _, want := range []string{
		fmt.Sprintf("approval %d: POST %s (rule api): allowed, once by uid:0", allowed, askURL),
		fmt.Sprintf(`approval %d: POST %s (rule api): denied by uid:0: "not today"`, denied, askURL),
	} {
		if !strings.Contains(strings.ReplaceAll(events, `\"`, `"`), want) {
			t.Errorf("no %q in the events:\n%s", want, events)
		}
	}
	var verdicts []string
	for _, l := range h.netLog(name) {
		if l.Protocol == "https" {
			verdicts = append(verdicts, l.Verdict+" "+l.Code)
		}
	}
	if got := strings.Join(verdicts, ", "); got != "ask , allow , ask , deny approval_denied, allow " {
		t.Errorf("records: %s", got)
	}
	past := h.ok("approve", "ls", "--all")
	if !strings.Contains(past, "allowed") || !strings.Contains(past, "denied") || strings.Contains(past, "?all=1") {
		t.Errorf("approve ls --all: %s", past)
	}
}

func refusedWith(t *testing.T, r result, code string) {
	t.Helper()
	var body struct{ Code, Message, Rule, Hint, What string }
	if err := json.Unmarshal([]byte(r.stdout), &body); err != nil || body.Code != code || body.Rule != "api" || body.Hint == "" || body.Message == "" || body.What == "" {
		t.Errorf("refused with %q (%v), want %s", r.stdout, err, code)
	}
}

// Nobody answers, the daemon dies, the gate dies, the policy changes: refused.
func TestAskFailsClosed(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		w, h, name := askBox(t, wall, "8s")
		late := h.asking(name, "curl", "-sS", askURL)
		refusedWith(t, <-late, "approval_expired")
		h.waits(0) // who asked may hear of it first
		h.ok("policy", "set", name, "--policy", h.write("long.yaml", fmt.Sprintf(askPolicy, "120s")))

		killed := h.asking(name, "curl", "-sS", askURL+"?daemon")
		q := h.waits(1)[0]
		h.killDaemon()
		// What waits goes on with the next daemon, which the old question is not put to.
		if r := h.run(nil, "approve", "allow", fmt.Sprint(q.ID)); r.code == 0 {
			t.Errorf("what a killed daemon was asked is allowed: %+v", r)
		}
		r := <-killed
		if !strings.Contains(r.stdout, "approval_voided") {
			t.Errorf("with a killed daemon: %+v", r)
		}
		h.waits(0)

		dying := h.asking(name, "curl", "-sS", "--max-time", "20", askURL+"?gate") // which may never hear of it
		q = h.waits(1)[0]
		if err := syscall.Kill(h.gatePID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if r := <-dying; r.code == 0 || strings.Contains(r.stdout, "hello") {
			t.Errorf("with a killed gate: %+v", r)
		}
		h.waits(0)
		if r := h.run(nil, "approve", "allow", fmt.Sprint(q.ID)); r.code == 0 {
			t.Errorf("what a killed gate asked is allowed: %+v", r)
		}

		// A grant is of the policy under which it was given.
		granted := h.asking(name, "curl", "-sS", askURL)
		h.ok("approve", "allow", "--scope", "sandbox", fmt.Sprint(h.waits(1)[0].ID))
		if r := <-granted; r.code != 0 || !strings.Contains(r.stdout, "hello") {
			t.Fatalf("granted: %+v", r)
		}
		if out := h.ok("exec", name, "--", "curl", "-sS", askURL); !strings.Contains(out, "hello") {
			t.Errorf("the same under its grant: %q", out)
		}
		other := h.asking(name, "curl", "-sS", askURL+"/7")
		q = h.waits(1)[0]
		h.ok("policy", "set", name, "--policy", h.write("other.yaml", fmt.Sprintf(askPolicy, "121s")))
		anew := h.anew(q.ID)
		if r := h.run(nil, "approve", "allow", fmt.Sprint(q.ID)); r.code == 0 || !strings.Contains(r.stderr, fmt.Sprintf("it is asked anew as approval %d", anew)) {
			t.Errorf("an answer under another policy: %+v", r)
		}
		h.ok("approve", "deny", fmt.Sprint(anew))
		refusedWith(t, <-other, "approval_denied")
		h.waits(0)
		void := h.asking(name, "curl", "-sS", askURL) // what was granted is asked anew
		h.ok("approve", "deny", fmt.Sprint(h.waits(1)[0].ID))
		refusedWith(t, <-void, "approval_denied")
		if got := w.received("api.example.com"); len(got) != 2 {
			t.Errorf("the server received %+v, want what was granted, twice", got)
		}
	})
}

// anew is the number of the one question that waits, once it is another than before.
func (h *home) anew(before int64) (id int64) {
	h.t.Helper()
	until(h.t, func() bool {
		list := h.waitsNow()
		if len(list) == 1 {
			id = list[0].ID
		}
		return len(list) == 1 && id != before
	})
	return id
}

// A rule is written, and holds. What else waits is decided under it: it is let go where the rule
// is about that too, and waits on where not.
func TestAskAlways(t *testing.T) {
	t.Parallel()
	w, h, name := askBox(t, "process", "60s")
	held := h.asking(name, "curl", "-sS", askURL+"?a=b")
	id := fmt.Sprint(h.waits(1)[0].ID)
	others := h.asking(name, "curl", "-sS", askURL+"?x=y&a=b")
	h.waits(2)
	waiting := h.asking(name, "curl", "-sS", askURL+"?a=d")
	last := h.waits(3)[2]
	if r := h.run(nil, "approve", "allow", "--scope", "always", id); r.code == 0 || !strings.Contains(r.stderr, "no terminal to ask on") || !strings.Contains(r.stderr, "approved-"+id) {
		t.Errorf("without --yes: %+v", r)
	}
	h.ok("approve", "allow", "--scope", "always", "--yes", id)
	if r := <-held; r.code != 0 || !strings.Contains(r.stdout, "hello") {
		t.Fatalf("what waited: %+v", r)
	}
	if r := <-others; r.code != 0 || !strings.Contains(r.stdout, "hello") {
		t.Fatalf("what the rule is about too: %+v", r)
	}
	h.ok("approve", "deny", fmt.Sprint(h.anew(last.ID)))
	refusedWith(t, <-waiting, "approval_denied")
	if out := h.ok("exec", name, "--", "curl", "-sS", askURL+"?a=b"); !strings.Contains(out, "hello") {
		t.Errorf("the same: %q", out)
	}
	other := h.asking(name, "curl", "-sS", askURL+"?a=c")
	h.ok("approve", "deny", fmt.Sprint(h.waits(1)[0].ID))
	refusedWith(t, <-other, "approval_denied")
	if got := w.received("api.example.com"); len(got) != 3 {
		t.Errorf("the server received %+v", got)
	}
}

// Ten thousand questions are a few, and the rest is refused at once; others are
// served meanwhile. The queue is the gate's, which is the same behind each wall.
func TestAskFlood(t *testing.T) {
	w, h, name := askBox(t, "process", "300s")
	flood := h.asking(name, "python3", "-c", askFlood)
	until(t, func() bool { return len(h.waitsNow()) >= 64 })
	if out := h.ok("exec", name, "--", "curl", "-sS", "https://api.example.com/open"); out != "hello from api.example.com\n" {
		t.Errorf("what is allowed meanwhile: %q", out)
	}
	if list := h.waitsNow(); len(list) > 64 {
		t.Errorf("%d questions wait", len(list))
	}
	// What is held is so until all the others have been refused.
	h.ok("exec", name, "--", "sh", "-c", "until test -e /tmp/refused; do sleep 0.1; done")
	no := "rules:\n  - {id: no, action: deny, hosts: [api.example.com], matches: [{methods: [GET]}]}\n"
	h.ok("policy", "set", name, "--policy", h.write("end.yaml", strings.Replace(fmt.Sprintf(askPolicy, "300s"), "rules:\n", no, 1)))
	r := <-flood
	codes := map[string]int{}
	if err := json.Unmarshal([]byte(r.stdout), &codes); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	t.Logf("answers by status: %v", codes)
	if codes["429"] < 10_000 || codes["200"] != 0 || codes["403"] < 64 {
		t.Errorf("answers by status: %v", codes)
	}
	until(t, func() bool { return len(h.waitsNow()) == 0 })
	for _, got := range w.received("api.example.com") {
		if got.Path != "/open" {
			t.Errorf("the server received %+v", got)
		}
	}
}

func (h *home) waitsNow() (list []api.Approval) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(h.ok("approve", "ls", "--json")), &list); err != nil {
		h.t.Fatal(err)
	}
	return list
}

// askFlood asks from many threads, of which each goes on until one of its questions
// has waited in vain. There is a file once all but those that wait are over.
const askFlood = `
import collections, http.client, json, ssl, threading
ctx = ssl.create_default_context()
codes, over, lock = collections.Counter(), [], threading.Lock()
def ask(k):
    c = None
    for i in range(140):
        try:
            if c is None: c = http.client.HTTPSConnection("api.example.com", context=ctx, timeout=400)
            c.request("GET", "/flood/%d/%d" % (k, i))
            r = c.getresponse(); r.read(); status = r.status
        except Exception as e:
            c, status = None, type(e).__name__
        with lock: codes[str(status)] += 1
        if status == 403: break
    with lock:
        over.append(k)
        if len(over) == 164 - 64: open("/tmp/refused", "w").close()
all = [threading.Thread(target=ask, args=(k,)) for k in range(164)]
for t in all: t.start()
for t in all: t.join()
print(json.dumps(codes))
`

// Nothing that can be reached from inside answers: not the gate, by any of its
// ports, nor the daemon.
func TestAskNobodyInsideAnswers(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		w, h, name := askBox(t, wall, "300s")
		held := h.asking(name, "curl", "-sS", askURL)
		q := h.waits(1)[0]
		h.ok("exec", name, "--", "sh", "-c", fmt.Sprintf(askInside, q.ID))
		if still := h.waitsNow(); len(still) != 1 || still[0].ID != q.ID {
			t.Errorf("answered from inside: %+v", still)
		}
		if got := w.received("api.example.com"); len(got) != 0 {
			t.Errorf("let go from inside: %+v", got)
		}
		h.ok("approve", "allow", fmt.Sprint(q.ID)) // from outside, it works
		if r := <-held; !strings.Contains(r.stdout, "hello") {
			t.Errorf("from outside: %+v", r)
		}
	})
}

const askInside = `
id=%d
for host in gate.carboy.internal 192.0.0.1 127.0.0.1 169.254.169.254; do
  for port in 53 80 81 443 3000 3128 49982 49983 49999; do
    for path in v1/approvals/$id/allow approvals/$id/allow answer asked config; do
      for method in POST PUT; do
        echo "--next
        url = http://$host:$port/$path
        request = $method
        data = {}
        max-time = 2
        connect-timeout = 1" 
      done
    done
  done
done | sed 's/^ *//; s/^--next$/next/' | tail -n +2 | curl -sS --parallel --parallel-max 40 -K - >/dev/null 2>&1
for s in /run/carboy/*.sock /run/user/*/carboy/*.sock; do
  [ -S "$s" ] && curl -sS --max-time 2 --unix-socket "$s" -X POST http://unix/v1/approvals/$id/allow
done
true
`

// A secret goes out once a person has said so, and the request does without asking
// where it has none.
func TestAskSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.https("api.github.com", worldA, nil)
	h := w.home("GITHUB_TOKEN=" + realToken)
	name := h.create("--isolation", "process", "--secret", "GITHUB_TOKEN", "--policy", h.write("policy.yaml", `
rules:
  - id: api
    hosts: [api.github.com]
    secrets: [{name: GITHUB_TOKEN, header: Authorization, ask: true}]
ask: {timeout: 30s}
`))
	held := h.asking(name, "curl", "-sS", "https://api.github.com/user")
	q := h.waits(1)[0]
	if q.Kind != "secret" || q.Secret != "GITHUB_TOKEN" || q.What != "GET https://api.github.com/user with GITHUB_TOKEN" {
		t.Errorf("asked: %+v", q)
	}
	h.ok("approve", "allow", fmt.Sprint(q.ID))
	if r := <-held; !strings.Contains(r.stdout, "hello") {
		t.Fatalf("allowed: %+v", r)
	}
	if got := w.received("api.github.com"); len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer "+realToken {
		t.Errorf("the server received %+v", got)
	}
	held = h.asking(name, "curl", "-sS", "https://api.github.com/user")
	h.ok("approve", "deny", fmt.Sprint(h.waits(1)[0].ID))
	refusedWith(t, <-held, "approval_denied")
}

// A connection that nobody reads waits too, and is reset when it is denied; one whose
// client has gone is not asked about any more.
func TestAskConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.resolve("db.example.com", worldB)
	l := w.listen(worldB + ":5432")
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("hello\n")) }))
	}()
	h := w.home()
	name := h.create("--isolation", "process", "--policy", h.write("policy.yaml", `
rules:
  - {id: api, action: ask, hosts: [db.example.com], ports: [5432], protocol: tcp}
`))
	held := h.asking(name, "curl", "-sS", "http://db.example.com:5432/")
	q := h.waits(1)[0]
	if q.What != "tcp://db.example.com:5432" || q.Kind != "connection" {
		t.Errorf("asked: %+v", q)
	}
	h.ok("approve", "allow", fmt.Sprint(q.ID))
	if r := <-held; r.stdout != "hello\n" {
		t.Errorf("allowed: %+v", r)
	}
	held = h.asking(name, "curl", "-sS", "http://db.example.com:5432/")
	h.ok("approve", "deny", fmt.Sprint(h.waits(1)[0].ID))
	if r := <-held; r.code != 56 {
		t.Errorf("denied: %+v, want a reset", r)
	}
}

// A client that leaves takes its question along, also one whose body was not read: as
// far as that fits into the connection, for behind the rest nothing can be seen to end.
func TestAskWithdrawn(t *testing.T) {
	t.Parallel()
	w, h, name := askBox(t, "process", "300s")
	body := h.write("body", strings.Repeat("x", 64<<10))
	h.ok("cp", body, name+":/tmp/body")
	for _, args := range [][]string{
		{askURL},
		{"--http1.1", "-T", "/tmp/body", askURL},
		{"-T", "/tmp/body", askURL},
	} {
		left := h.asking(name, append([]string{"sh", "-c", `echo $$ >/tmp/pid; exec curl -sS "$@"`, "sh"}, args...)...)
		h.waits(1)
		h.ok("exec", name, "--", "sh", "-c", "kill -KILL $(cat /tmp/pid)")
		<-left
		h.waits(0)
	}
	if got := w.received("api.example.com"); len(got) != 0 {
		t.Errorf("the server received %+v", got)
	}
	_ = os.Remove(body)
}
