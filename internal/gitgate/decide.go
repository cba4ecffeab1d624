package gitgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// decide goes by what was found: nothing that is denied passes, and what is to be asked
// about passes if a person says so.
func (p *push) decide(ctx context.Context) error {
	switch {
	case p.worst[Deny]:
		p.client.tell(p.lines(Deny)...)
		return denied("it has what may not be pushed: %s", strings.Join(p.kinds(), ", "))
	case !p.worst[Ask]:
		return nil
	}
	p.client.tell(p.lines(Ask)...)
	p.client.tell("git gate: a person is asked")
	answer, err := p.ask(ctx)
	if err != nil {
		if weak.On(weak.GitAskOpen) {
			return nil
		}
		return err
	}
	if !answer.Allow {
		return denied("a person said no%s", because(answer.Reason))
	}
	p.client.tell("git gate: a person said yes" + because(answer.Reason))
	return nil
}

// ask has a person asked.
func (p *push) ask(ctx context.Context) (Answer, error) {
	if p.gate.c.Asker == nil {
		return Answer{}, denied("a person would have to be asked, and nobody can be: %s", strings.Join(p.kinds(), ", "))
	}
	q := Question{Remote: p.remote.Name, Updates: p.order.updates, Shown: p.shown, Commits: p.commits, Bytes: p.bytes}
	q.Findings, q.Counts = p.found.named()
	if err := p.show(ctx, &q); err != nil {
		return Answer{}, err
	}
	p.leave() // a person takes long
	answer, err := p.gate.c.Asker.Ask(ctx, q)
	again, full := p.gate.enter(ctx)
	if p.leave = again; full != nil {
		p.leave = func() {}
		return Answer{}, full
	}
	if err == nil || ctx.Err() != nil {
		return answer, errors.Join(err, context.Cause(ctx))
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return Answer{}, e
	}
	return Answer{}, denied("a person would have to be asked, and could not be")
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// lines say what was found, of that action, for people.
func (p *push) lines(of Action) (lines []string) {
	lines = append(lines, fmt.Sprintf("git gate: %s: %s for what is in this push:", p.remote.Name, map[Action]string{Deny: "refused", Ask: "to be asked about"}[of]))
	named, counts := p.found.named()
	hidden := map[group]int{}
	for _, c := range counts {
		hidden[group{c.Kind, c.What}] = c.N
	}
	for _, f := range named {
		hidden[f.group()]--
		if f.Action == of {
			lines = append(lines, "  "+f.String())
		}
	}
	for _, c := range counts {
		if n := hidden[group{c.Kind, c.What}]; n > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more: %s: %s", n, c.Kind.words(), c.What))
		}
	}
	if of == Deny {
		for _, s := range settings {
			if slices.ContainsFunc(counts, func(c Count) bool { return c.Kind == s.kind }) {
				lines = append(lines, "  "+s.advice)
			}
		}
	}
	return lines
}

// settings say what can be done about what is denied.
var settings = []struct {
	kind   Kind
	advice string
}{
	{Secret, "each commit is looked at: amend or rebase the one that has it"},
	{ForcedRef, "push to another branch, or ask the owner: push.forced of this remote decides that"},
	{DeletedRef, "leave it, or ask the owner: push.deletions of this remote decides that"},
	{HeldFile, "leave it out, or ask the owner: push.held of this remote decides that"},
	{Binary, "leave it out, or ask the owner: push.binaries of this remote decides that"},
	{Unscannable, "leave it out, or ask the owner: push.unscannable of this remote decides that"},
}

// words are a kind for people.
func (k Kind) words() string {
	if k == HeldFile {
		return "held back"
	}
	return string(k)
}

// String says what was found and where, and never the secret itself. It is fit to be shown.
func (f Finding) String() string {
	what := f.Kind.words()
	if f.Rule != "" {
		what += " (" + f.Rule + ")"
	}
	var at []string
	if f.Path != "" {
		at = append(at, term.Escape(f.Path))
		if f.Line > 0 {
			at[0] += fmt.Sprintf(":%d", f.Line)
		}
	}
	if f.Ref != "" {
		at = append(at, "ref "+term.Escape(short(f.Ref)))
	}
	if f.Commit != "" {
		at = append(at, clip(f.Commit, 12))
	}
	if len(at) > 0 {
		what += " " + strings.Join(at, " in ")
	}
	if f.Kind == HeldFile && f.Blob != "" {
		what += " (blob " + clip(f.Blob, 12) + ")"
	}
	if f.Why != "" {
		what += ": " + f.Why
	}
	return what
}
