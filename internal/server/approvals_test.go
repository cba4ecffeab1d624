package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// asked is a desk with n questions of an owner's sandbox, whose gate takes every
// answer.
func asked(s desk.Store, owner string, n int) *desk.Desk {
	d := desk.New(desk.Options{Store: counted{s}, Answer: func(context.Context, string, approval.Answer) error { return nil }})
	snap := approval.Snapshot{Version: 1}
	for i := range n {
		snap.Open = append(snap.Open, approval.Held{
			ID: fmt.Sprint("q", i), Waiting: 1, Asked: time.Now(), Expires: time.Now().Add(time.Hour),
			Question: approval.Question{
				Kind: approval.Request, Rule: "api", Revision: "r", Protocol: "https", Host: "api.example.com", Port: 443, Method: "GET", Target: fmt.Sprint("/", i),
			},
		})
	}
	d.Line(&sandbox.Sandbox{ID: "sb_asks", Owner: owner, Spec: sandbox.Spec{Name: "asks"}}).Seen(snap)
	return d
}

// counted is a Store whose numbers a test can know.
type counted struct{ desk.Store }

func (counted) DrawApprovals(context.Context, int) ([]int64, error) {
	return []int64{1, 2, 3, 4, 5, 6, 7, 8}, nil
}

// remembers is a Store of nothing but what is put.
type remembers struct{ all map[int64]api.Approval }

func (r *remembers) DrawApprovals(context.Context, int) ([]int64, error) {
	return []int64{1, 2, 3, 4, 5, 6, 7, 8}, nil
}

func (r *remembers) PutApproval(_ context.Context, a api.Approval) error {
	r.all[a.ID] = a
	return nil
}

func (r *remembers) Approval(_ context.Context, id int64) (api.Approval, error) {
	return r.all[id], nil
}

func (r *remembers) Approvals(context.Context, string, int) ([]api.Approval, error) { return nil, nil }

// What others make of a policy while a rule is written into it stays.
func TestAlwaysAmongOthers(t *testing.T) {
	asking := policy.Policy{Rules: []policy.Rule{{ID: "api", Action: policy.ActionAsk, Hosts: []string{"api.example.com"}}}}
	deny := policy.Rule{ID: "api", Action: policy.ActionDeny, Hosts: []string{"api.example.com"}}
	for name, tt := range map[string]struct {
		meanwhile policy.Policy
		status    int
		rules     string
	}{
		"nobody":     {asking, 200, "api approved-1"},
		"a rule":     {policy.With(asking, policy.Rule{ID: "more", Hosts: []string{"b.example"}}), 200, "api more approved-1"},
		"tightened":  {policy.Policy{Rules: []policy.Rule{deny}}, 409, "api"},
		"other rule": {policy.Policy{Rules: []policy.Rule{{ID: "api", Action: policy.ActionAsk, Hosts: []string{"api.example.com"}, Protocol: policy.ProtocolTLS}}}, 409, "api"},
		"taken away": {policy.Policy{}, 409, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := policy.Compile(asking, nil)
			if err != nil {
				t.Fatal(err)
			}
			owner := fmt.Sprint("uid:", os.Getuid())
			m := &netManager{owner: owner, spec: sandbox.Spec{Name: "web", Policy: policy.Clone(&asking)}}
			m.before = sync.OnceFunc(func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.spec.Policy = policy.Clone(&tt.meanwhile)
			})
			d := desk.New(desk.Options{Store: &remembers{map[int64]api.Approval{}}, Answer: func(context.Context, string, approval.Answer) error { return nil }})
			d.Line(&sandbox.Sandbox{ID: "sb_web", Owner: owner, Spec: sandbox.Spec{Name: "web"}}).Seen(approval.Snapshot{Open: []approval.Held{{
				ID: "q", Waiting: 1, Asked: time.Now(), Expires: time.Now().Add(time.Hour),
				Question: approval.Question{Kind: approval.Request, Rule: "api", Revision: set.Revision(), Protocol: "https", Host: "api.example.com", Port: 443, Method: "GET", Target: "/a?b=c"},
			}}})
			w := serveManager(t, m, server.Options{Approvals: d})
			resp, body := w.do(t, request{method: "POST", path: "/v1/approvals/1/allow", body: `{"scope":"always"}`})
			if resp.StatusCode != tt.status || tt.status == 409 && !strings.Contains(body, "it was allowed once") {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			var rules []string
			for _, r := range m.spec.Policy.Rules {
				rules = append(rules, r.ID)
			}
			if got := strings.Join(rules, " "); got != tt.rules {
				t.Errorf("the policy has the rules %q, want %q", got, tt.rules)
			}
		})
	}
}

// What is asked is shown to its owner and nobody else, and answered once.
func TestApprovals(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	if list := decode[[]api.Approval](t, w.want(t, 200, "ours", "GET", "/v1/approvals", "")); len(list) != 2 || list[0].What != "GET https://api.example.com/0" {
		t.Errorf("ours: %+v", list)
	}
	if list := decode[[]api.Approval](t, w.want(t, 200, "theirs", "GET", "/v1/approvals?all=1", "")); len(list) != 0 {
		t.Errorf("theirs: %+v", list)
	}
	for path, body := range map[string]string{
		"/v1/approvals/1/allow": `{"scope":"forever"}`, "/v1/approvals/1/deny": `{"scope":"once"}`,
		"/v1/approvals/0/allow": `{}`, "/v1/approvals/x/allow": `{}`, "/v1/approvals/2/allow": `{"for_ms":1000}`,
	} {
		w.want(t, http.StatusBadRequest, "ours", "POST", path, body)
	}
	// A rule takes the sandbox, which is not there; nothing is let go for it.
	w.want(t, http.StatusNotFound, "ours", "POST", "/v1/approvals/1/allow", `{"scope":"always"}`)
	got := decode[api.Approval](t, w.want(t, 200, "ours", "POST", "/v1/approvals/1/allow", `{"scope":"sandbox","for_ms":60000}`))
	if got.State != "granted" || !strings.HasSuffix(got.By, "/all") && got.By == "" || got.Until.IsZero() {
		t.Errorf("granted: %+v", got)
	}
	body := w.want(t, http.StatusConflict, "ours", "POST", "/v1/approvals/1/deny", `{}`)
	if !strings.Contains(body, "it was allowed for the sandbox by") {
		t.Errorf("answered twice: %s", body)
	}
	if list := decode[[]api.Approval](t, w.want(t, 200, "ours", "GET", "/v1/approvals?all=1", "")); len(list) != 2 {
		t.Errorf("all: %+v", list)
	}
}
