package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/learn"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// policyLearnFrom learns from a record that is there.
func (a *app) policyLearnFrom(ctx context.Context, o *learnOptions, args []string) error {
	if len(args) > 0 {
		return usage.Errorf("policy learn: --from runs nothing, and there is a COMMAND").WithHint("leave out one of the two")
	}
	if err := o.check(); err != nil {
		return err
	}
	base, err := launch.LoadPolicy(o.run.spec.Policy, o.run.spec.Allow, a.Note)
	if err != nil {
		return err
	}
	var records []api.NetRecord
	if isRecordPath(o.from) {
		records, err = a.savedRecord(o.from)
	} else {
		records, base, err = a.recordOf(ctx, o.from, base)
	}
	if err != nil {
		return err
	}
	secrets := secretsIn(records)
	if base != nil {
		for _, r := range base.Rules {
			for _, s := range r.Secrets {
				if !s.Optional && !slices.Contains(secrets, s.Name) {
					secrets = append(secrets, s.Name)
				}
			}
		}
	}
	return a.learnFrom(o, records, learn.Options{Base: base, Secrets: secrets, Presets: o.presets})
}

// isRecordPath reports whether --from names a file, and no sandbox: those have names of
// one word.
func isRecordPath(s string) bool {
	return s == "-" || strings.ContainsAny(s, "/.")
}

func (a *app) savedRecord(name string) ([]api.NetRecord, error) {
	what := "--from " + shell.Word(name)
	var in io.Reader = a.Stdin
	if name != "-" {
		f, err := beneath.OpenInput(name)
		if err != nil {
			return nil, usage.Path(what, "", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	} else if a.Stdin == nil {
		return nil, usage.Errorf("%s: there is no stdin", what)
	}
	records, err := learn.Read(in)
	if err != nil {
		return nil, usage.Errorf("%s: %v", what, usage.Pathless(err)).WithHint("carboy net log --json NAME > FILE")
	}
	return records, nil
}

// recordOf is the record of a sandbox that is there, or ended of late, and the policy
// that it has where none is given.
func (a *app) recordOf(ctx context.Context, name string, base *policy.Policy) ([]api.NetRecord, *policy.Policy, error) {
	svc, err := a.service(ctx)
	if err != nil {
		return nil, nil, err
	}
	if base == nil {
		if base, err = svc.Policy(ctx, name); err != nil && sandbox.KindOf(err) != sandbox.NotFound && sandbox.KindOf(err) != sandbox.Conflict {
			return nil, nil, err
		}
		if err != nil {
			base = nil
		}
	}
	rec := &recorder{svc: svc, id: name}
	err = rec.read(ctx, client.NetLogOptions{})
	return rec.records, base, err
}

// learnFrom derives a policy, proves it and writes it.
func (a *app) learnFrom(o *learnOptions, records []api.NetRecord, lo learn.Options) error {
	l, err := learn.From(records, lo)
	if err != nil {
		return sandbox.PolicyError("policy learn", usageError(err))
	}
	text, err := l.Text()
	if err != nil {
		return fmt.Errorf("policy learn: %w", err)
	}
	written, err := policy.Parse(text)
	if err != nil {
		return fmt.Errorf("policy learn: %w", err)
	}
	proof, err := l.Prove(written)
	if err != nil {
		return fmt.Errorf("policy learn: %w", err)
	}
	if !proof.OK() {
		err = usage.Errorf("policy learn: %s", proof.Text()).WithHint("--keep-going writes it all the same")
		if !o.keepGoing {
			return err
		}
		text = slices.Concat([]byte("# not proven: the record is not whole, or can't be held against it\n"), text)
	}
	for _, w := range l.Warnings[:min(len(l.Warnings), maxWarnings)] {
		a.NoteReason("learned", w)
	}
	if n := len(l.Warnings) - maxWarnings; n > 0 {
		a.NoteReason("learned", console.Count(n, "more of the kind")+": see the comments")
	}
	if werr := a.writeLearned(o, &written, text); werr != nil {
		return werr
	}
	if err == nil {
		a.NoteReason("learned", learnedText(&written, proof))
	}
	return err
}

// maxWarnings bounds what is told of one policy.
const maxWarnings = 10

func usageError(err error) error {
	if len(policy.Problems(err)) > 0 {
		return err
	}
	return usage.Errorf("policy learn: %v", err)
}

// learnedText says what was proven.
func learnedText(p *policy.Policy, proof *learn.Proof) string {
	parts := []string{proof.Text()}
	if proof.Replayed == 0 {
		parts[0] = "nothing was reached, and the policy allows nothing"
	}
	n := len(p.Rules)
	what := console.Count(n, "rule")
	if len(p.Presets) > 0 {
		what += " and " + console.Count(len(p.Presets), "preset")
	}
	parts = append(parts, what)
	if proof.Refused > 0 {
		parts = append(parts, console.Count(proof.Refused, "refusal")+" as before")
	}
	if proof.LeftOut > 0 {
		parts = append(parts, console.Count(proof.LeftOut, "question")+" for names that were never connected to left out")
	}
	return strings.Join(parts, "; ")
}

// writeLearned writes the policy's text to stdout or to a file, whole or not at all. A
// file that says the same already is left as it is, comments and all.
func (a *app) writeLearned(o *learnOptions, p *policy.Policy, text []byte) error {
	if o.toStdout() {
		if a.JSON {
			return a.WriteJSON(p)
		}
		out := console.Output(a.Stdout)
		_, err := out.Write(text)
		console.Flush(out)
		return err
	}
	if !o.force {
		if same, err := a.already(o, p); same || err != nil {
			return err
		}
	}
	if err := durable.Write(o.output, text, durable.Options{Mode: 0o644, Keep: !o.force}); err != nil {
		return usage.Path("policy learn: "+shell.Word(o.output), "", err)
	}
	return nil
}

// already reports whether FILE says what p does. One that says something else is an
// error, after the difference was shown.
func (a *app) already(o *learnOptions, p *policy.Policy) (same bool, err error) {
	there, what, err := o.there()
	if there == nil {
		return false, err
	}
	was, is := learn.Plain(there), learn.Plain(p)
	if bytes.Equal(was, is) {
		a.NoteReason("learned", shell.Word(o.output)+" says the same already, and is left as it is")
		return true, nil
	}
	_, _ = a.Stderr.Write(term.EscapeText([]byte(udiff.Unified(o.output, "learned", string(was), string(is))))) // nothing is left to tell it to
	e := usage.Errorf("%s: it is there, and says something else", what)
	if o.ran == "" {
		return false, e.WithHint("--force overwrites it; -o says another name")
	}
	return false, e.WithHint("without another run: %s", o.again())
}

// again is the command that learns once more from the run that there was.
func (o *learnOptions) again() string {
	words := []string{"carboy", "policy", "learn", "--from", o.ran}
	if f := o.run.spec.Policy; f != "" {
		words = append(words, "--policy", f)
	}
	for _, s := range o.run.spec.Allow {
		words = append(words, "--allow", s)
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"--presets", o.presets}, {"--keep-going", o.keepGoing}} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	for i := range words {
		words[i] = shell.Word(words[i])
	}
	return strings.Join(words, " ") + " --force -o " + shell.Word(o.output)
}
