package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/near"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// policySource are the flags that say rules.
type policySource struct {
	policy string
	allow  []string
}

func (f *policySource) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.policy, "policy", "", "`FILE` the policy in FILE")
	fs.StringArrayVar(&f.allow, "allow", nil, "`WHAT` a preset, host, address, range or service:NAME, added to it")
}

func (a *app) policyPresetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "presets [flags] [NAME...]",
		Short: "List what --allow knows by name, and what each opens",
		Args:  cobra.ArbitraryArgs,
		RunE: interruptible(func(_ context.Context, args []string) error {
			return a.policyPresets(args)
		}),
		ValidArgsFunction: completePreset,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "With names, only those. A preset opens methods and paths, never a whole host.",
		examples: []string{"carboy policy presets", "carboy policy presets npm github"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) policyPresets(names []string) error {
	all := policy.Presets()
	known := presetNames()
	for _, name := range names {
		if !slices.Contains(known, name) {
			e := usage.Errorf("policy presets: there is no preset %s", shell.Word(name))
			if n := near.Of(name, known); n != "" {
				return e.WithHint("did you mean %s?", n)
			}
			return e.WithHint("carboy policy presets")
		}
	}
	shown := []api.PolicyPreset{}
	for _, p := range all {
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		shown = append(shown, netspec.View(p))
	}
	if a.JSON {
		return a.WriteJSON(shown)
	}
	for i, p := range shown {
		if i > 0 {
			if err := a.PrintLine(""); err != nil {
				return err
			}
		}
		if err := a.presetText(&p); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) presetText(p *api.PolicyPreset) error {
	if err := a.PrintLine(p.Name + ": " + p.Summary); err != nil {
		return err
	}
	for _, line := range p.Opens {
		if err := a.PrintLine("  " + line); err != nil {
			return err
		}
	}
	if len(p.Secrets) > 0 {
		return a.PrintLine("  takes --secret " + strings.Join(p.Secrets, ", --secret "))
	}
	return nil
}

func presetNames() (names []string) {
	for _, p := range policy.Presets() {
		names = append(names, p.Name)
	}
	return names
}

// completePreset completes a preset's name; hosts and addresses are free.
func completePreset(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return without(presetNames(), args), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) policyImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "import [flags] FILE",
		Short:             "Make a policy of the settings of another sandbox",
		Args:              exactArgs("FILE"),
		RunE:              interruptible(func(_ context.Context, args []string) error { return a.policyImport(args[0]) }),
		ValidArgsFunction: completeCommand,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `FILE has the settings of Anthropic's sandbox-runtime, or a policy, which is checked;
- is stdin. The policy is written to stdout as YAML, and what can't be carried over is
told on stderr, or is an error. --policy of run and create reads such a file, too.`,
		examples: []string{"carboy policy import ~/.srt-settings.json > policy.yaml"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) policyImport(file string) error {
	var b []byte
	var err error
	if file == "-" {
		if a.Stdin == nil {
			return usage.Errorf("policy import: there is no stdin")
		}
		b, err = launch.ReadPolicy("policy import: stdin", a.Stdin)
	} else {
		b, err = launch.ReadPolicyFile("policy import "+shell.Word(file), file)
	}
	if err != nil {
		return err
	}
	p, notes, err := launch.ParsePolicy(b)
	if err == nil {
		_, err = policy.Compile(p, secretsOf(&p))
	}
	if err != nil {
		return sandbox.PolicyError("policy import "+shell.Word(file), err)
	}
	for _, n := range notes {
		a.Note(n.String())
	}
	if a.JSON {
		return a.WriteJSON(p)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		return err
	}
	out := console.Output(a.Stdout)
	_, err = out.Write(text)
	console.Flush(out)
	return err
}

// secretsOf returns the names of the secrets that a policy has places for.
func secretsOf(p *policy.Policy) (names []string) {
	for _, r := range p.Rules {
		for _, s := range r.Secrets {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	return names
}
