package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := a.nounCommand("policy", "Look at what sandboxes may reach, and change it", "carboy policy show NAME")
	cmd.AddCommand(a.policyShowCommand(), a.policySetCommand(), a.policyTestCommand(), a.policyPresetsCommand(), a.policyImportCommand(), a.policyLearnCommand())
	return setHelp(cmd, docs{
		long: `A policy is a list of rules; what no rule is about is refused, unless the network is
on. --allow and --policy of run and create give a sandbox one.`,
		examples: []string{"carboy policy presets", "carboy policy test web GET https://example.com/"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) policyShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [flags] NAME",
		Short: "Show what a sandbox may reach",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.policyShow(ctx, svc, args[0])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "A line for each rule, in order. What --json writes can be given to --policy again.",
		examples: []string{"carboy policy show web", "carboy policy show --json web > policy.json"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) policyShow(ctx context.Context, svc *client.Client, name string) error {
	p, err := svc.Policy(ctx, name)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(p)
	}
	mine := *p
	if set, err := policy.Compile(mine, secretsOf(&mine)); err == nil {
		mine = set.Policy() // with presets as rules, and with the IDs that records have
	}
	var t console.Table
	t.Row("RULE", "SAYS")
	for i := range mine.Rules {
		r := &mine.Rules[i]
		t.Row(r.ID, policy.Describe(r))
	}
	for _, name := range mine.Services {
		t.Row("service:"+name, policy.DescribeService(name))
	}
	rest := "deny what no rule is about"
	switch mine.Default {
	case policy.DefaultPublic:
		rest = "allow public addresses, but for hosts that a rule is about"
	case policy.DefaultRead:
		rest = "allow public addresses, their TLS read, but for hosts that a rule is about"
	}
	t.Row("default", rest)
	return t.Write(a.Stdout)
}

func (a *app) policySetCommand() *cobra.Command {
	var f policySource
	var add bool
	cmd := &cobra.Command{
		Use:               "set [flags] NAME",
		Short:             "Change what a sandbox may reach, open connections too",
		Args:              exactArgs("NAME"),
		RunE:              interruptible(func(ctx context.Context, args []string) error { return a.policySet(ctx, args[0], &f, add) }),
		ValidArgsFunction: a.completeName(1),
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&add, "add", false, "keep the rules that there are, and add these")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `The rules replace those that the sandbox has, unless --add keeps them. Connections
that the new ones do not allow are cut. A mistake changes nothing. carboy set does the
same with --policy and --allow, and gives a network to a sandbox without one.`,
		examples: []string{"carboy policy set web --policy policy.yaml", "carboy policy set web --add --allow api.example.com"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) policySet(ctx context.Context, name string, f *policySource, add bool) error {
	p, err := launch.LoadPolicy(f.policy, f.allow, a.Note)
	if err != nil {
		return err
	}
	if p == nil {
		return usage.Errorf("policy set: --policy or --allow is missing").WithHint("carboy policy set %s --policy FILE", shell.Word(name))
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	if _, err := policy.Compile(*p, secretsOf(p)); err != nil {
		return sandbox.PolicyError("policy set", err)
	}
	set := svc.SetPolicy
	if add {
		set = svc.AddPolicy
	}
	sb, err := set(ctx, name, *p)
	if err != nil {
		return err
	}
	return a.Answer(sb, sb.Name)
}

func (a *app) policyTestCommand() *cobra.Command {
	var f policySource
	var addr string
	cmd := &cobra.Command{
		Use:   "test [flags] [NAME] REQUEST",
		Short: "Say what would become of a request, without sending it",
		Args:  someArgs(1, "REQUEST"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.policyTest(ctx, &f, addr, args)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&addr, "address", "", "`ADDRESS` take the name to lead there (default a public address)")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `REQUEST is METHOD URL, or tcp://HOST:PORT, udp://HOST:PORT, tls://HOST[:PORT] or
dns:NAME. It is tried on the policy of the sandbox NAME, or without NAME on what
--policy and --allow say. Nothing is resolved and nothing is sent: where a name really
leads is checked when a connection is made.`,
		examples: []string{
			"carboy policy test web GET https://api.github.com/user",
			"carboy policy test --allow npm PUT https://example.com/package",
			"carboy policy test --policy policy.yaml dns:example.com",
		},
		exits: []exitDoc{{"0", "it would be allowed"}, {"1", "it would be refused, or a person asked"}, {"125", "carboy failed, or was used wrongly"}},
	})
}

func (a *app) policyTest(ctx context.Context, f *policySource, addr string, args []string) error {
	p, err := launch.LoadPolicy(f.policy, f.allow, a.Note)
	if err != nil {
		return err
	}
	var v *api.PolicyVerdict
	if p != nil {
		v, err = netspec.Test(*p, secretsOf(p), api.PolicyTestRequest{Request: strings.Join(args, " "), Address: addr})
	} else {
		v, err = a.policyTestNamed(ctx, addr, args)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.WriteJSON(v)
	} else {
		err = a.verdictText(v)
	}
	if err == nil && !v.Allowed {
		err = &exit.Error{Code: 1}
	}
	return err
}

func (a *app) policyTestNamed(ctx context.Context, addr string, args []string) (*api.PolicyVerdict, error) {
	if isRequest := strings.Contains(args[0], ":") || args[0] == strings.ToUpper(args[0]) && len(args) == 2; isRequest {
		return nil, usage.Errorf("policy test: it is not said whose policy: NAME, --policy or --allow is missing").
			WithHint("carboy policy test NAME %s", strings.Join(args, " "))
	}
	if len(args) < 2 {
		return nil, usage.Errorf("policy test: REQUEST is missing").WithHint("carboy policy test NAME GET https://example.com/")
	}
	svc, err := a.service(ctx)
	if err != nil {
		return nil, err
	}
	return svc.TestPolicy(ctx, args[0], api.PolicyTestRequest{Request: strings.Join(args[1:], " "), Address: addr})
}

func (a *app) verdictText(v *api.PolicyVerdict) error {
	words := nonEmpty("refused", v.Code)
	switch {
	case v.Allowed:
		words = []string{"allowed"}
	case v.Ask:
		words = []string{"asks"}
	}
	parts := []string{strings.Join(words, ": ")}
	if v.Rule != "" {
		parts = append(parts, "rule "+v.Rule)
	}
	if len(v.Secrets) > 0 {
		parts = append(parts, "with "+strings.Join(v.Secrets, " "))
	}
	line := strings.Join(parts, ", ")
	if v.Reason != "" {
		line += ": " + v.Reason
	}
	if v.Hint != "" {
		line += " (" + v.Hint + ")"
	}
	if err := a.PrintLine(line); err != nil {
		return err
	}
	if v.Note != "" {
		a.NoteReason("address", v.Note)
	}
	if len(v.Steps) < 2 {
		return nil
	}
	var t console.Table
	t.Row("STEP", "VERDICT", "RULE", "REASON")
	for _, s := range v.Steps {
		t.Row(s.Question, s.Mode, s.Rule, strings.Join(nonEmpty(s.Code, s.Reason), ": "))
	}
	if err := a.PrintLine(""); err != nil {
		return err
	}
	return t.Write(a.Stdout)
}
