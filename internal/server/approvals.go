package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

// Approvals has what sandboxes ask people. *desk.Desk is one, and documents each
// method.
type Approvals interface {
	List(ctx context.Context, c sandbox.Caller, all bool) ([]api.Approval, error)
	Get(ctx context.Context, c sandbox.Caller, id int64) (api.Approval, error)
	Since(ctx context.Context, c sandbox.Caller, after uint64) ([]api.Approval, uint64)
	Decide(ctx context.Context, c sandbox.Caller, id int64, dec desk.Decision) (api.Approval, error)
}

// approvalAPI is what /v1/ has about what sandboxes ask.
type approvalAPI struct {
	desk Approvals // nil: no sandbox has a network
	m    networks
}

// open fails where nothing is ever asked.
func (a approvalAPI) open() error {
	if a.desk == nil {
		return sandbox.Errorf(sandbox.Unsupported, "sandboxes have no network here, and ask nothing")
	}
	return nil
}

// list writes a caller's questions, or with follow each as it changes.
func (a approvalAPI) list(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "all", "follow")
	var all, follow bool
	if err == nil {
		all, err = truth("all", q["all"])
	}
	if err == nil {
		follow, err = truth("follow", q["follow"])
	}
	if err == nil && all && follow {
		err = sandbox.Errorf(sandbox.Invalid, "parameters all and follow: they don't go together")
	}
	if err == nil {
		err = a.open()
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	if follow {
		a.follow(w, r)
		return
	}
	list, err := a.desk.List(r.Context(), auth.Of(r).Caller, all)
	answer(w, http.StatusOK, list, err)
}

// follow writes a line for each question that waits, and then for each that changes.
// What changes faster than the caller reads is written as it is in the end.
func (a approvalAPI) follow(w http.ResponseWriter, r *http.Request) {
	out := newStream(w, "application/jsonl")
	out.begin()
	var version uint64
	for r.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(r.Context(), holdBeat)
		changes, now := a.desk.Since(ctx, auth.Of(r).Caller, version)
		cancel()
		version = now
		var lines []byte
		for i := range changes {
			b, err := json.Marshal(changes[i])
			if err != nil {
				return
			}
			lines = append(append(lines, b...), '\n')
		}
		if len(lines) == 0 {
			lines = []byte("\n") // a sign of life
		}
		if !out.write(lines) {
			return
		}
	}
}

// numberOf is the question that a request is about.
func numberOf(r *http.Request) (int64, error) {
	text := r.PathValue("id")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || text[0] == '+' || text[0] == '0' {
		return 0, sandbox.Errorf(sandbox.Invalid, "approval %.40q: not a number", text).WithHint("carboy approve ls")
	}
	return n, nil
}

func (a approvalAPI) get(w http.ResponseWriter, r *http.Request) {
	one, err := a.one(r)
	if err == nil && one.State == string(approval.Asked) {
		w, why := a.rule(r, one, nil)
		switch sandbox.KindOf(why) {
		case "":
			one.Writes = &w.rule
		case sandbox.Internal: // it is for the log alone
		default:
			one.NoRule = strings.TrimPrefix(why.Error(), fmt.Sprintf("approval %d: ", one.ID))
		}
	}
	answer(w, http.StatusOK, one, err)
}

func (a approvalAPI) one(r *http.Request) (api.Approval, error) {
	if err := a.open(); err != nil {
		return api.Approval{}, err
	}
	n, err := numberOf(r)
	if err != nil {
		return api.Approval{}, err
	}
	return a.desk.Get(r.Context(), auth.Of(r).Caller, n)
}

// written is a rule, and the change that adds it to the policy it was worked out from.
type written struct {
	rule   policy.Rule
	change sandbox.NetworkChange
}

// rule is what the scope "always" writes for a question. shown is the rule that was
// agreed to, of an earlier policy: no other is written in its place. nil: the policy
// is to be the one under which it was asked.
func (a approvalAPI) rule(r *http.Request, one api.Approval, shown *policy.Rule) (written, error) {
	refused := func(format string, args ...any) (written, error) {
		e := sandbox.Errorf(sandbox.Conflict, "approval %d: no rule can be written for it: %s", one.ID, fmt.Sprintf(format, args...))
		return written{}, e.WithHint("allow it once, or for this sandbox: --scope sandbox")
	}
	if one.Kind == string(approval.Push) {
		return refused("each push is asked about by itself")
	}
	caller := auth.Of(r).Caller
	sb, err := a.m.Get(r.Context(), caller, one.SandboxID)
	if err != nil {
		return written{}, err
	}
	p, err := a.m.Policy(r.Context(), caller, one.SandboxID)
	if err != nil {
		return written{}, err
	}
	set, err := policy.Compile(p, sb.Spec.Secrets)
	if err != nil {
		return written{}, sandbox.PolicyError("policy", err)
	}
	if shown == nil && set.Revision() != one.Revision {
		e := sandbox.Errorf(sandbox.Conflict, "approval %d: the policy has changed since it was asked: what still waits is asked anew", one.ID)
		return written{}, e.WithHint("carboy approve ls")
	}
	q := policy.Question{Rule: one.Rule, Host: one.Host, Port: one.Port, Address: one.Address, Method: one.Method, Target: one.Target, Secret: one.Secret}
	rule, err := set.Always(fmt.Sprintf("approved-%d", one.ID), q)
	if err != nil {
		return refused("%v", err)
	}
	if shown != nil && !reflect.DeepEqual(rule, *shown) {
		return refused("the policy has changed, and it would be another rule")
	}
	with := policy.With(p, rule)
	if _, err := policy.Compile(with, sb.Spec.Secrets); err != nil {
		return refused("%v", err)
	}
	if !auth.Of(r).PrivateNetwork() {
		if err := netspec.Private(&with, sb.Spec.Secrets); err != nil {
			return written{}, err
		}
	}
	return written{rule, sandbox.NetworkChange{Policy: with, If: set.Revision()}}, nil
}

// write writes a rule into the policy as it is by now: what others change meanwhile
// stays as they have it.
func (a approvalAPI) write(r *http.Request, one api.Approval, w written) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), ruleTime)
	defer cancel()
	r = r.WithContext(ctx)
	for left := ruleTries; ; left-- {
		_, err := a.m.SetNetwork(ctx, auth.Of(r).Caller, one.SandboxID, w.change)
		if sandbox.KindOf(err) != sandbox.Conflict || left == 0 {
			return err
		}
		if w, err = a.rule(r, one, &w.rule); err != nil {
			return err
		}
	}
}

func (a approvalAPI) allow(w http.ResponseWriter, r *http.Request) { a.decide(w, r, true) }
func (a approvalAPI) deny(w http.ResponseWriter, r *http.Request)  { a.decide(w, r, false) }

func (a approvalAPI) decide(w http.ResponseWriter, r *http.Request, allow bool) {
	var d api.ApprovalDecision
	err := wire.Decode(r, &d, true)
	var one api.Approval
	if err == nil {
		one, err = a.decided(r, allow, d)
	}
	answer(w, http.StatusOK, one, err)
}

// decided carries a decision out. With "always" the rule is known to be one before
// anything is let go, and is written once that is.
func (a approvalAPI) decided(r *http.Request, allow bool, d api.ApprovalDecision) (api.Approval, error) {
	n, err := numberOf(r)
	if err == nil {
		err = a.open()
	}
	if err != nil {
		return api.Approval{}, err
	}
	span, err := millis("for_ms", d.For)
	if err != nil {
		return api.Approval{}, err
	}
	who := auth.Of(r)
	dec := desk.Decision{Allow: allow, Scope: approval.Scope(d.Scope), For: span, Reason: d.Reason, By: who.Credential()}
	var asked api.Approval // with its query, which the rule needs
	var rule written
	if allow && dec.Scope == approval.Always {
		if !who.Allows(key.Manage) {
			return api.Approval{}, sandbox.Errorf(sandbox.Denied, "this key has not the scope %s, which a rule takes", key.Manage)
		}
		if asked, err = a.desk.Get(r.Context(), who.Caller, n); err != nil {
			return api.Approval{}, err
		}
		if asked.State == string(approval.Asked) { // Decide has the words where it is not
			if rule, err = a.rule(r, asked, nil); err != nil {
				return api.Approval{}, err
			}
		}
	}
	one, err := a.desk.Decide(r.Context(), who.Caller, n, dec)
	if err != nil || rule.rule.ID == "" {
		return one, err
	}
	if err := a.write(r, asked, rule); err != nil {
		e := sandbox.Errorf(sandbox.KindOf(err), "approval %d: it was allowed once, and the rule could not be written: %v", n, err)
		e.Err = err
		return api.Approval{}, e
	}
	one.Writes = &rule.rule
	return one, nil
}

// Bounds of writing a rule: how long, and how often anew where others change the same
// policy.
const (
	ruleTime  = 30 * time.Second
	ruleTries = 16
)
