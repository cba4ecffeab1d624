package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// person answers what is asked.
type person struct {
	mu    sync.Mutex
	asked []approval.Question
	say   func(approval.Question) approval.Outcome
}

func (p *person) ask(_ context.Context, q approval.Question, begun func()) approval.Outcome {
	if begun != nil {
		begun()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, q)
	return p.say(q)
}

func (p *person) questions() []approval.Question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func says(s approval.State) func(approval.Question) approval.Outcome {
	return func(approval.Question) approval.Outcome { return approval.Outcome{State: s} }
}

func asks(p *person) worldOptions {
	return worldOptions{change: func(o *proxy.Options) { o.Ask = p.ask }}
}

var askAPI = policy.Policy{Rules: []policy.Rule{{ID: "ask", Action: "ask", Hosts: []string{"api.example.com"}}}}

func TestAskedRequests(t *testing.T) {
	for _, tt := range []struct {
		name   string
		out    approval.Outcome
		status int
		code   string
	}{
		{"allowed", approval.Outcome{State: approval.Allowed}, 200, ""},
		{"granted", approval.Outcome{State: approval.Granted}, 200, ""},
		{"denied", approval.Outcome{State: approval.Denied}, 403, proxy.CodeApprovalDenied},
		{"expired", approval.Outcome{State: approval.Expired}, 403, proxy.CodeApprovalExpired},
		{"voided", approval.Outcome{State: approval.Voided}, 403, proxy.CodeApprovalVoided},
		{"full", approval.Outcome{State: approval.Denied, Full: true}, 429, proxy.CodeApprovalFull},
		{"nothing", approval.Outcome{}, 403, proxy.CodeApprovalDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &person{say: func(approval.Question) approval.Outcome { return tt.out }}
			w := newWorld(t, askAPI, asks(p))
			reached := false
			w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { reached = true; _, _ = rw.Write([]byte("ok")) }))
			status, body := asked(t, w, "https://api.example.com/v1/items?a=b")
			if status != tt.status || !strings.Contains(body, tt.code) || reached != (tt.status == 200) {
				t.Errorf("%d %s, reached %v", status, body, reached)
			}
			q := p.questions()
			if len(q) != 1 || q[0].What() != "GET https://api.example.com/v1/items?a=b" || q[0].Rule != "ask" || q[0].Revision == "" || q[0].Kind != approval.Request {
				t.Errorf("asked: %+v", q)
			}
		})
	}
}

// Where nobody is there to ask, the answer is no; and so it is about what is too long.
func TestNobodyToAsk(t *testing.T) {
	w := newWorld(t, askAPI, worldOptions{})
	w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	if status, body := asked(t, w, "https://api.example.com/"); status != 403 || !strings.Contains(body, proxy.CodeApprovalDenied) {
		t.Errorf("%d %s", status, body)
	}
	p := &person{say: says(approval.Allowed)}
	w = newWorld(t, askAPI, asks(p))
	w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	if status, body := asked(t, w, "https://api.example.com/"+strings.Repeat("x", approval.MaxTarget)); status != 403 || len(p.questions()) != 0 {
		t.Errorf("%d %s, asked %+v", status, body, p.questions())
	}
}

// after returns askAPI with another time-out, so that it is another policy, and what is added.
func after(timeout string, rules ...policy.Rule) policy.Policy {
	p := askAPI
	p.Ask.Timeout = timeout
	p.Rules = append(rules, p.Rules...)
	return p
}

// A policy that changes while something waits has it asked anew under that, where that asks
// still; what it allows is let go, and what it denies refused. An answer to the old question,
// which may come at that very moment, lets nothing go.
func TestPolicyTurnsUnderAQuestion(t *testing.T) {
	allow := policy.Rule{ID: "approved", Hosts: []string{"api.example.com"}, Matches: []policy.Match{{Methods: []string{"GET"}}}}
	deny := allow
	deny.ID, deny.Action = "no", policy.ActionDeny
	for name, tt := range map[string]struct {
		then   policy.Policy
		last   approval.State
		asked  int
		status int
		code   string
	}{
		"asked-anew":        {after("60s"), approval.Allowed, 2, 200, ""},
		"asked-anew-denied": {after("60s"), approval.Denied, 2, 403, proxy.CodeApprovalDenied},
		"allowed":           {after("", allow), "", 1, 200, ""},
		"denied":            {after("", deny), "", 1, 403, proxy.CodeCut},
	} {
		for _, old := range []approval.Outcome{{State: approval.Voided, Changed: true}, {State: approval.Allowed}} {
			t.Run(name+"-"+string(old.State), func(t *testing.T) {
				p := &person{}
				w := newWorld(t, askAPI, asks(p))
				var reached atomic.Int32
				w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { reached.Add(1); _, _ = rw.Write([]byte("ok")) }))
				var set sync.WaitGroup
				p.say = func(approval.Question) approval.Outcome {
					if len(p.asked) > 1 {
						return approval.Outcome{State: tt.last}
					}
					w.set(tt.then)
					set.Go(func() { w.proxy.Recheck() })
					return old
				}
				status, body := asked(t, w, "https://api.example.com/")
				set.Wait()
				if status != tt.status || !strings.Contains(body, tt.code) || reached.Load() != map[bool]int32{true: 1}[status == 200] {
					t.Errorf("%d %s, reached %d", status, body, reached.Load())
				}
				q := p.questions()
				if len(q) != tt.asked {
					t.Fatalf("asked: %+v", q)
				}
				if last := q[len(q)-1]; len(q) == 2 && (last.Revision == q[0].Revision || last.Revision != w.policy.Load().Revision()) {
					t.Errorf("asked anew: %+v", last)
				}
			})
		}
	}
}

// A request whose secret a person is asked about waits on as well, where all else is the same.
func TestPolicyTurnsUnderASecret(t *testing.T) {
	secret := policy.Secret{Name: "TOKEN", Header: "X-Api-Key", Ask: true}
	rule := func(s ...policy.Secret) policy.Rule {
		return policy.Rule{ID: "api", Hosts: []string{"api.example.com"}, Secrets: s}
	}
	deny := policy.Rule{ID: "no", Action: policy.ActionDeny, Hosts: []string{"api.example.com"}, Matches: []policy.Match{{Methods: []string{"GET"}}}}
	given, elsewhere := secret, secret
	given.Ask, elsewhere.Header = false, "X-Other-Key"
	for name, tt := range map[string]struct {
		then   policy.Policy
		asked  int
		status int
		code   string
	}{
		"asked-anew":   {policy.Policy{Rules: []policy.Rule{rule(secret), {ID: "more", Hosts: []string{"b.example"}}}}, 2, 200, "given: true"},
		"allowed":      {policy.Policy{Rules: []policy.Rule{rule(given)}}, 1, 200, "given: true"},
		"not-given":    {policy.Policy{Rules: []policy.Rule{rule()}}, 1, 403, proxy.CodeApprovalVoided},
		"put-in-other": {policy.Policy{Rules: []policy.Rule{rule(elsewhere)}}, 1, 403, proxy.CodeApprovalVoided},
		"denied":       {policy.Policy{Rules: []policy.Rule{deny, rule(secret)}}, 1, 403, proxy.CodeCut},
	} {
		t.Run(name, func(t *testing.T) {
			p := &person{}
			o := asks(p)
			o.secrets = map[string]string{"TOKEN": "value-of-the-token"}
			w := newWorld(t, policy.Policy{Rules: []policy.Rule{rule(secret)}}, o)
			w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				fmt.Fprint(rw, "given: ", r.Header.Get("X-Api-Key") == "value-of-the-token")
			}))
			p.say = func(approval.Question) approval.Outcome {
				if len(p.asked) > 1 {
					return approval.Outcome{State: approval.Allowed}
				}
				w.set(tt.then, "TOKEN")
				w.proxy.Recheck()
				return approval.Outcome{State: approval.Voided, Changed: true}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Api-Key", placeholder("TOKEN"))
			resp, err := w.client(false).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.code) || len(p.questions()) != tt.asked {
				t.Errorf("%d %s, asked %+v", resp.StatusCode, body, p.questions())
			}
		})
	}
}

// A policy that changes while a secret's value is fetched finds out that it is used, though it
// was not when the change was looked at.
func TestPolicyTurnsUnderAValue(t *testing.T) {
	secret := policy.Secret{Name: "TOKEN", Header: "X-Api-Key"}
	asks := secret
	asks.Ask = true
	rule := func(id string, s ...policy.Secret) policy.Policy {
		return policy.Policy{Rules: []policy.Rule{{ID: id, Hosts: []string{"api.example.com"}, Secrets: s}}}
	}
	for name, tt := range map[string]struct {
		then   policy.Policy
		status int
	}{
		"asks":        {rule("api", asks), 403},
		"not-given":   {rule("api"), 403},
		"still-given": {rule("other", secret), 200},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			o := worldOptions{secrets: map[string]string{"TOKEN": ""}}
			o.change = func(o *proxy.Options) {
				o.Guard = inject.NewGuard(inject.Options{
					Placeholders: map[string]string{"TOKEN": placeholder("TOKEN")},
					Value: func(context.Context, string) (string, error) {
						w.set(tt.then, "TOKEN")
						w.proxy.Recheck()
						return "value-of-the-token", nil
					},
				})
			}
			w = newWorld(t, rule("api", secret), o)
			var reached atomic.Bool
			w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
			status, body := asked(t, w, "https://api.example.com/")
			if status != tt.status || status == 403 && !strings.Contains(body, proxy.CodeCut) || reached.Load() != (status == 200) {
				t.Errorf("%d %s, reached %t", status, body, reached.Load())
			}
		})
	}
}

// A policy that changes voids the question, and that is what the sandbox is told, whichever
// of the two comes first.
func TestPolicyChangesUnderAQuestion(t *testing.T) {
	p := &person{}
	w := newWorld(t, askAPI, asks(p))
	w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	for round := range 50 {
		var set sync.WaitGroup
		p.say = func(approval.Question) approval.Outcome {
			other := askAPI
			other.Ask.Timeout = fmt.Sprint(60+round, "s")
			set.Go(func() { w.set(other) })
			return approval.Outcome{State: approval.Voided}
		}
		if status, body := asked(t, w, "https://api.example.com/"); status != 403 || !strings.Contains(body, proxy.CodeApprovalVoided) {
			t.Fatalf("round %d: %d %s", round, status, body)
		}
		set.Wait()
	}
}

// What was allowed and is under way is cut once the policy is another that asks.
func TestRecheckOfWhatWasAllowed(t *testing.T) {
	p := &person{say: says(approval.Allowed)}
	w := newWorld(t, askAPI, asks(p))
	began, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		close(began)
		<-end
	}))
	done := make(chan error, 1)
	go func() {
		resp, err := w.client(false).Get("https://api.example.com/")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode != http.StatusOK { // cut before the answer had begun inside
			err = errors.New(resp.Status)
		}
		done <- err
	}()
	<-began
	if cut := w.proxy.Recheck(); cut != 0 {
		t.Errorf("under the same policy %d were cut", cut)
	}
	other := askAPI
	other.Ask.Timeout = "60s"
	w.set(other)
	if cut := w.proxy.Recheck(); cut == 0 {
		t.Error("nothing was cut")
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("what was cut ended well")
		}
	case <-time.After(patience.For(20 * time.Second)):
		t.Error("it goes on")
	}
}

// asked gets a URL from inside.
func asked(t *testing.T, w *world, url string) (status int, body string) {
	t.Helper()
	resp, err := w.client(false).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Nobody has consented to anything where nobody was asked.
func TestNoConsent(t *testing.T) {
	if proxy.Covers("") || proxy.Covers("r") {
		t.Error("who was not asked has consented")
	}
}

type current = proxy.Policy

// turning is a policy that changes once it has given its verdict about a connection.
type turning struct {
	current
	then func()
}

func (p turning) Stream(s policy.Stream) policy.Verdict {
	defer p.then()
	return p.current.Stream(s)
}

// A connection is asked about under the policy whose rule has it asked.
func TestPolicyChangesBeforeTheQuestion(t *testing.T) {
	p := &person{say: says(approval.Allowed)}
	asking := askAPI
	asking.Rules = []policy.Rule{{ID: "ask", Action: "ask", Hosts: []string{"api.example.com"}, Protocol: policy.ProtocolTLS}}
	var w *world
	o := asks(p)
	turn := sync.OnceFunc(func() { w.set(policy.Policy{}) })
	change := o.change
	o.change = func(o *proxy.Options) {
		change(o)
		now := o.Policy
		o.Policy = func() proxy.Policy { return turning{now(), turn} }
	}
	w = newWorld(t, asking, o)
	w.web("api.example.com", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	if resp, err := w.client(false).Get("https://api.example.com/"); err == nil {
		resp.Body.Close()
		t.Errorf("went on: %s", resp.Status)
	}
	set, err := policy.Compile(asking, nil)
	if err != nil {
		t.Fatal(err)
	}
	if q := p.questions(); len(q) != 1 || q[0].Revision != set.Revision() {
		t.Errorf("asked: %+v", q)
	}
}
