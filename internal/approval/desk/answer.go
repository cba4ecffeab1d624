package desk

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Decision is a person's answer.
type Decision struct {
	Allow  bool
	Scope  approval.Scope // of an allow
	For    time.Duration  // of approval.Sandbox; 0: approval.MaxGrant
	Reason string
	By     string // who says so
}

// check refuses what is no decision.
func (dec *Decision) check() error {
	bad := func(format string, args ...any) *sandbox.Error {
		return sandbox.Errorf(sandbox.Invalid, format, args...)
	}
	switch {
	case dec.Allow && dec.Scope == "":
		dec.Scope = approval.Once
	case !dec.Allow && dec.Scope != "":
		return bad("scope: it is of what is allowed")
	}
	switch {
	case dec.Allow && dec.Scope != approval.Once && dec.Scope != approval.Sandbox && dec.Scope != approval.Always:
		return bad("scope %.40q: there is no such scope", dec.Scope).WithHint("once, sandbox or always")
	case dec.For != 0 && dec.Scope != approval.Sandbox:
		return bad("for: it bounds the scope sandbox alone")
	case dec.For < 0 || dec.For > approval.MaxGrant:
		return bad("for: more than 0, and at most %s", approval.MaxGrant)
	case len(dec.Reason) > maxReason || !utf8.ValidString(dec.Reason):
		return bad("reason: at most %d bytes of text", maxReason)
	}
	return nil
}

// Decide carries a caller's decision out: at the gate first, and only what that has
// taken is written down and told.
func (d *Desk) Decide(ctx context.Context, c sandbox.Caller, id int64, dec Decision) (api.Approval, error) {
	if err := dec.check(); err != nil {
		return api.Approval{}, err
	}
	it, err := d.claim(ctx, c, id)
	if err != nil {
		return api.Approval{}, err
	}
	if it.line.pushes && dec.Scope == approval.Sandbox {
		d.mu.Lock()
		it.deciding = false
		d.mu.Unlock()
		return api.Approval{}, sandbox.Errorf(sandbox.Invalid, "approval %d: each push is asked about by itself", id).WithHint("carboy approve allow %d", id)
	}
	a := approval.Answer{ID: it.gate, Question: it.question, Event: approval.Deny}
	state := approval.Denied
	switch {
	case dec.Scope == approval.Sandbox:
		span := dec.For
		if span == 0 {
			span = approval.MaxGrant
		}
		a.Event, state, a.Until = approval.Grant, approval.Granted, time.Now().Add(span).UTC()
	case dec.Allow:
		a.Event, state = approval.Allow, approval.Allowed
	}
	// It is done or not, whoever hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	err = it.line.answer(ctx, a)
	d.mu.Lock()
	it.deciding = false
	if err != nil {
		if it.line.lost {
			it.became = approval.Voided
		}
		over := it.became != "" && d.liveLocked(it)
		if over {
			d.endLocked(it, it.became)
		}
		out := it.Approval
		d.mu.Unlock()
		if over {
			d.keep(out)
		}
		e := sandbox.Errorf(sandbox.Conflict, "approval %d: the gate did not take the answer, and nothing was let go: it may be over", id).WithHint("carboy approve show %d", id)
		e.Err = err
		return api.Approval{}, e
	}
	it.Scope, it.Reason, it.By, it.Until = string(dec.Scope), dec.Reason, dec.By, a.Until
	it.Decided = time.Now().UTC()
	d.endLocked(it, state)
	out := it.Approval
	lost := it.line.lost && state == approval.Granted
	if lost { // the gate has ended since, and its grant with it
		d.endLocked(it, approval.Voided)
	}
	d.mu.Unlock()
	d.keep(out)
	if lost {
		d.keep(it.Approval)
	}
	return out, nil
}

// claim finds a question that is open, for one decision alone.
func (d *Desk) claim(ctx context.Context, c sandbox.Caller, id int64) (*item, error) {
	d.mu.Lock()
	it := d.open[id]
	switch {
	case it == nil || !visible(c, &it.Approval):
		d.mu.Unlock()
		return nil, d.over(ctx, c, id)
	case it.deciding:
		d.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Conflict, "approval %d: it is being answered", id)
	}
	it.deciding = true
	d.mu.Unlock()
	return it, nil
}

// over says why a question can't be answered.
func (d *Desk) over(ctx context.Context, c sandbox.Caller, id int64) error {
	a, err := d.Get(ctx, c, id)
	if err != nil {
		return err
	}
	text := map[string]string{
		string(approval.Allowed): "it was allowed", string(approval.Granted): "it was allowed for the sandbox",
		string(approval.Denied): "it was denied", string(approval.Expired): "nobody answered in time, and it was refused",
		string(approval.Voided): "it is void: the policy, the gate or the daemon has changed since",
	}[a.State]
	if text == "" {
		text = "it is over"
	}
	if a.By != "" {
		text += " by " + a.By
	}
	hint := "what asks again gets a new number: carboy approve ls"
	if n := d.anew(&a); n != 0 {
		text, hint = fmt.Sprintf("%s; it is asked anew as approval %d", text, n), fmt.Sprintf("carboy approve show %d", n)
	}
	return sandbox.Errorf(sandbox.Conflict, "approval %d: %s", id, text).WithHint("%s", hint)
}

// anew is the number of the one open question that asks the same as one that is void; 0 where
// there is none, or several, for the query of what is over is not kept.
func (d *Desk) anew(a *api.Approval) (n int64) {
	if a.State != string(approval.Voided) {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	same := func(b *api.Approval) bool {
		return a.SandboxID == b.SandboxID && a.Kind == b.Kind && a.Rule == b.Rule && a.Protocol == b.Protocol && a.Host == b.Host &&
			a.Port == b.Port && a.Address == b.Address && a.Method == b.Method && a.Target == b.Target && a.Secret == b.Secret && a.Body == b.Body && a.Kind != string(approval.Push)
	}
	for id, it := range d.open {
		b := it.quiet()
		switch {
		case !same(&b):
		case n != 0:
			return 0
		default:
			n = id
		}
	}
	return n
}

// EventText is a line of a sandbox's log about a question.
func EventText(a api.Approval) string {
	var b strings.Builder
	fmt.Fprintf(&b, "approval %d: %s (rule %s): %s", a.ID, a.What, a.Rule, a.State)
	switch {
	case a.Scope == string(approval.Sandbox):
		fmt.Fprintf(&b, " until %s", a.Until.Format(time.RFC3339))
	case a.Scope != "":
		fmt.Fprintf(&b, ", %s", a.Scope)
	}
	if a.By != "" {
		b.WriteString(" by " + a.By)
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, ": %q", a.Reason)
	}
	return b.String()
}
