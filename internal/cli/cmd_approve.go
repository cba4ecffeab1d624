package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) approveCommand() *cobra.Command {
	cmd := a.nounCommand("approve", "Answer what sandboxes ask", "carboy approve ls")
	cmd.AddCommand(a.approveLsCommand(), a.approveShowCommand(), a.approveAllowCommand(), a.approveDenyCommand())
	return setHelp(cmd, docs{
		long: `A rule of a policy whose action is ask has a person asked before a request or a
connection goes out; a secret with ask: true, before that does. It waits for an
answer, five minutes unless the policy says otherwise, and is then refused.`,
		examples: []string{"carboy approve ls -f", "carboy approve allow 271828182", "carboy approve deny 271828182"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) approveLsCommand() *cobra.Command {
	var all, follow bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List what waits for an answer",
		Args:  exactArgs(),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, _ []string) error {
			switch {
			case all && follow:
				return usage.Errorf("approve ls: --all can't go with --follow").WithHint("leave out one of the two")
			case follow:
				return a.approveFollow(ctx, svc)
			}
			return a.approveLs(ctx, svc, all)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "and what was answered, or was not in time")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more is asked and answered, until Ctrl-C")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `--json writes an array; with -f, one question a line, each again as it changes. What
was answered is kept: the newest 1000 of each owner, without their queries.`,
		examples: []string{"carboy approve ls", "carboy approve ls --all --json", "carboy approve ls -f"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) approveLs(ctx context.Context, svc *client.Client, all bool) error {
	list, err := svc.Approvals(ctx, all)
	if err != nil {
		return err
	}
	now := a.Now()
	l := listing[api.Approval]{
		columns: []string{"ID", "SANDBOX", "STATE", "RULE", "WHAT", "WAITING", "UNTIL"},
		row: func(one *api.Approval, _ time.Time) []string {
			waiting, until := "", ""
			switch {
			case one.State == string(approval.Asked):
				waiting, until = strconv.Itoa(one.Waiting), one.Expires.Sub(now).Round(time.Second).String()
			case one.State == string(approval.Granted):
				until = one.Until.Sub(now).Round(time.Second).String()
			}
			return []string{strconv.FormatInt(one.ID, 10), one.Sandbox, one.State, one.Rule, one.What, waiting, until}
		},
	}
	return l.show(a, list)
}

func (a *app) approveFollow(ctx context.Context, svc *client.Client) error {
	states := map[int64]string{}
	for one, err := range svc.FollowApprovals(ctx) {
		switch {
		case err != nil:
		case a.JSON:
			err = console.WriteJSONLine(a.Stdout, one)
		case states[one.ID] != one.State: // and not how many wait for it
			states[one.ID] = one.State
			err = a.PrintLine(approvalLine(&one, a.Now()))
			if one.State != string(approval.Asked) {
				delete(states, one.ID)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// approvalLine is one in a line: when, its state, which, and what.
func approvalLine(one *api.Approval, now time.Time) string {
	line := fmt.Sprintf("%s  %-9s  %d  %s: %s (rule %s)", now.Local().Format(time.DateTime), one.State, one.ID, one.Sandbox, one.What, one.Rule)
	if one.By != "" {
		line += ", by " + one.By
	}
	return line
}

func (a *app) approveShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [flags] ID",
		Short: "Show one question, and what became of it",
		Args:  exactArgs("ID"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			id, err := approvalID(args[0])
			if err != nil {
				return err
			}
			one, err := svc.Approval(ctx, id)
			if err != nil {
				return err
			}
			return a.approvalText(one)
		}),
		ValidArgsFunction: a.completeApproval(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `While it waits, the rule that allow --scope always would write is shown, too. Of a push there is
why it is asked about, which refs it changes, its commits, and what they change: the first 64
KiB, without the parts that seem to have a secret.`,
		examples: []string{"carboy approve show 271828182"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) approvalText(one *api.Approval) error {
	if a.JSON {
		return a.WriteJSON(one)
	}
	now := a.Now()
	var t console.Table
	row := func(name, text string) {
		if text != "" {
			t.Row(name, text)
		}
	}
	row("id", strconv.FormatInt(one.ID, 10))
	row("sandbox", one.Sandbox)
	row("state", one.State)
	row("what", one.What)
	row("kind", one.Kind)
	row("rule", one.Rule)
	row("secret", one.Secret)
	row("address", one.Address)
	if one.Body {
		row("carries", "more than is shown")
	}
	row("asked", when(one.Asked, now))
	if one.State == string(approval.Asked) {
		row("waiting", strconv.Itoa(one.Waiting))
		row("refused in", one.Expires.Sub(now).Round(time.Second).String())
	}
	row("scope", one.Scope)
	if !one.Until.IsZero() {
		row("until", one.Until.Local().Format(time.DateTime))
	}
	row("answered", when(one.Decided, now))
	row("by", one.By)
	row("reason", one.Reason)
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	if one.Push != nil {
		return a.printPush(one.Push)
	}
	if one.Writes == nil {
		return nil
	}
	if err := a.PrintLine("always:"); err != nil {
		return err
	}
	lines, err := ruleLines(one.Writes)
	for _, line := range lines {
		if err == nil {
			err = a.PrintLine("  " + line)
		}
	}
	return err
}

// ruleLines is a rule as a policy's file has it.
func ruleLines(r *api.PolicyRule) ([]string, error) {
	text, err := json.Marshal(map[string]any{"rules": []*api.PolicyRule{r}})
	if err != nil {
		return nil, err
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// approvalID reads a question's number.
func approvalID(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id < 1 {
		return 0, usage.Errorf("%s: not the number of a question", strconv.Quote(s)).WithHint("carboy approve ls")
	}
	return id, nil
}

// completeApproval completes numbers of questions that wait.
func (a *app) completeApproval(most int) completer {
	get := func(svc *client.Client, ctx context.Context) ([]api.Approval, error) {
		return svc.Approvals(ctx, false)
	}
	complete := completing(a, get, func(one *api.Approval) string { return strconv.FormatInt(one.ID, 10) })
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, word)
	}
}

type approveOptions struct {
	scope  string
	span   time.Duration
	reason string
	yes    bool
}

func (a *app) approveAllowCommand() *cobra.Command {
	var o approveOptions
	cmd := &cobra.Command{
		Use:   "allow [flags] ID...",
		Short: "Let through what waits",
		Args:  someArgs(1, "ID"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.approveAllow(ctx, svc, args, o)
		}),
		ValidArgsFunction: a.completeApproval(0),
	}
	fs := cmd.Flags()
	fs.StringVar(&o.scope, "scope", string(approval.Once), "`SCOPE` once: what waits now; sandbox: the same later, too; always: by a rule")
	fs.DurationVar(&o.span, "for", 0, "`TIME` end the scope sandbox after that (default and most 24h)")
	fs.StringVar(&o.reason, "reason", "", "`TEXT` for whoever reads the record")
	fs.BoolVarP(&o.yes, "yes", "y", false, "don't ask on a terminal, nor before the rule of --scope always")
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `It shows what it is about to let through, and asks where there is a terminal; without
one it goes on, but for --scope always. Its number alone says nothing: read what is shown.
What is let through is this request alone: its rule, host, method, path and query, and
its address where the rule is about that, under the policy as it is; a body, which nobody
has seen, goes along. Of a push it is those commits, and no other ones that the refs might
lead to later, and --scope is once. --scope sandbox lets the same through again until the sandbox
stops, its policy changes or the daemon is another. --scope always shows the rule that
it adds to the sandbox's policy, and asks.`,
		examples: []string{"carboy approve allow 271828182", "carboy approve allow --scope sandbox --for 1h 271828182", "carboy approve allow --scope always 271828182"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) approveAllow(ctx context.Context, svc *client.Client, args []string, o approveOptions) error {
	if !slices.Contains([]string{string(approval.Once), string(approval.Sandbox), string(approval.Always)}, o.scope) {
		return usage.Errorf("--scope %s: there is no such scope", strconv.Quote(o.scope)).WithHint("once, sandbox or always")
	}
	switch {
	case o.span != 0 && o.scope != string(approval.Sandbox):
		return usage.Errorf("--for: it bounds --scope sandbox alone").WithHint("add --scope sandbox, or leave --for out")
	case o.span < 0 || o.span > approval.MaxGrant || o.span != 0 && o.span < time.Second:
		return usage.Errorf("--for %s: from 1s to %s", o.span, approval.MaxGrant)
	}
	d := api.ApprovalDecision{Scope: o.scope, For: o.span.Milliseconds(), Reason: o.reason}
	return a.decide(ctx, args, func(id int64) (*api.Approval, error) {
		one, err := svc.Approval(ctx, id)
		if err != nil {
			return nil, err
		}
		if one.State == string(approval.Asked) { // the daemon has the words where it is not
			if err := a.showAllowed(ctx, one, o); err != nil {
				return nil, err
			}
		}
		decided, err := svc.Allow(ctx, id, d)
		if err == nil && !a.JSON {
			decided.What = one.What // with its query
		}
		return decided, err
	})
}

// showAllowed shows a person what an answer lets through before it does.
func (a *app) showAllowed(ctx context.Context, one *api.Approval, o approveOptions) error {
	if o.scope == string(approval.Always) {
		return a.showRule(ctx, one, o.yes)
	}
	if o.yes || !a.CanAsk() {
		return nil
	}
	lines := []string{about(one)}
	if one.Push != nil {
		lines = append(lines, pushLines(one.Push)...)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.Stderr, console.Escape(line)); err != nil {
			return err
		}
	}
	return a.confirm(ctx, "approve allow", "", "allow this?")
}

// about is what an answer is about, for people.
func about(one *api.Approval) string {
	text := fmt.Sprintf("%s (rule %s, sandbox %s)", one.What, one.Rule, one.Sandbox)
	if one.Body {
		text += ", and what it carries, which is not shown"
	}
	return text
}

// showRule shows what a policy gets, and asks.
func (a *app) showRule(ctx context.Context, one *api.Approval, yes bool) error {
	if one.Writes == nil { // nothing is written that nobody saw
		return sandbox.Errorf(sandbox.Conflict, "approval %d: %s", one.ID, cmp.Or(one.NoRule, "no rule can be written for it")).
			WithHint("allow it once, or for this sandbox: --scope sandbox; see what waits now: carboy approve ls")
	}
	lines, err := ruleLines(one.Writes)
	if err != nil {
		return err
	}
	if !a.JSON {
		for _, line := range append([]string{about(one), "policy of " + one.Sandbox + ":"}, lines...) {
			if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "-") {
				line = "+ " + line
			}
			if _, err := fmt.Fprintln(a.Stderr, console.Escape(line)); err != nil {
				return err
			}
		}
	}
	if yes {
		return nil
	}
	return a.confirm(ctx, "approve allow", fmt.Sprintf("carboy approve allow --scope always --yes %d", one.ID), "add this rule?")
}

func (a *app) approveDenyCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "deny [flags] ID...",
		Short: "Refuse what waits",
		Args:  someArgs(1, "ID"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.decide(ctx, args, func(id int64) (*api.Approval, error) {
				return svc.Deny(ctx, id, api.ApprovalDecision{Reason: reason})
			})
		}),
		ValidArgsFunction: a.completeApproval(0),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for whoever reads the record")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long:     "Who asks the same again is asked about again: a rule with action: deny ends that.",
		examples: []string{"carboy approve deny 271828182 314159265"},
		exits:    exitDocsPlain[:],
	})
}

// decide carries one decision out for each question, in order, and goes on after one
// that could not be.
func (a *app) decide(_ context.Context, args []string, one func(id int64) (*api.Approval, error)) error {
	var ids []int64
	for _, arg := range args {
		id, err := approvalID(arg)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	done := []api.Approval{}
	var failed error
	for _, id := range ids {
		decided, err := one(id)
		switch {
		case err != nil && failed != nil:
			a.PrintError(failed)
			failed = err
		case err != nil:
			failed = err
		case a.JSON:
			done = append(done, *decided)
		default:
			if err := a.PrintLine(decided.State + ": " + about(decided)); err != nil {
				return err
			}
		}
		if sandbox.KindOf(err) == sandbox.Denied && err != nil { // no yes: nor to the rest
			break
		}
	}
	if a.JSON && (failed == nil || len(done) > 0) {
		if err := a.WriteJSON(done); err != nil {
			return err
		}
	}
	return failed
}
