package desk

import (
	"context"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func push() approval.Snapshot {
	return approval.Snapshot{Open: []approval.Held{{
		ID: "p1", Waiting: 1, Asked: time.Now(), Expires: time.Now().Add(time.Minute), Push: &api.ApprovalPush{Remote: "app", Diff: "+a line"},
		Question: approval.Question{Kind: approval.Push, Rule: "git-gate/app", Revision: "git", Protocol: "git", Host: "git.example", Port: 22, Target: "app: main a..b", Push: "digest"},
	}}}
}

// TestPushes: what a git gate asks stands beside what the egress gate of the same sandbox does, and is answered there. The
// egress gate, which the sandbox's traffic may have taken over, can't ask it. What a push changes is shown to who looks
// at it alone, and not kept.
func TestPushes(t *testing.T) {
	w := newWorld(0)
	w.Line(box("sb_a")).Seen(push())
	if list := w.list(t, owner); len(list) != 0 {
		t.Fatalf("an egress gate asks about a push: %+v", list)
	}
	var answers []approval.Answer
	gate := w.Line(box("sb_a"))
	gate.Seen(holds("/a"))
	git := w.Pushes(box("sb_a"), func(_ context.Context, a approval.Answer) error {
		if a.Event == approval.Allow { // what is no push was refused
			answers = append(answers, a)
		}
		return nil
	})
	git.Seen(holds("/b")) // which is no push
	git.Seen(push())
	list := w.list(t, owner)
	if len(list) != 2 {
		t.Fatalf("list: %+v", list)
	}
	one := list[0]
	if one.Kind != string(approval.Push) {
		one = list[1]
	}
	if one.What != "push app: main a..b" || one.Push != nil {
		t.Errorf("in a list: %+v", one)
	}
	if got, err := w.Get(t.Context(), owner, one.ID); err != nil || got.Push == nil || got.Push.Diff != "+a line" {
		t.Errorf("Get = %+v, %v", got, err)
	}
	if _, err := w.Get(t.Context(), other, one.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Get by another owner: %v", err)
	}
	if _, err := w.Decide(t.Context(), owner, one.ID, Decision{Allow: true, Scope: approval.Sandbox}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("Decide for the sandbox: %v", err)
	}
	if _, err := w.Decide(t.Context(), owner, one.ID, Decision{Allow: true}); err != nil || len(answers) != 1 || len(w.answers) != 1 || w.answers[0].Event != approval.Deny || answers[0].Question.Push != "digest" {
		t.Errorf("Decide: %v, the git gate was told %+v, the other %+v", err, answers, w.answers)
	}
	if got, err := w.Get(t.Context(), owner, one.ID); err != nil || got.State != string(approval.Allowed) || got.Push == nil || got.Push.Diff != "" {
		t.Errorf("once it was allowed: %+v, %v", got, err)
	}
	git.Lost()
	if left := w.list(t, owner); len(left) != 1 || left[0].Kind != string(approval.Request) {
		t.Errorf("without the git gate: %+v", left)
	}
}
