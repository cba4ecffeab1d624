package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type upOptions struct {
	agentOptions
	plan bool
}

func (a *app) upCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up [flags] AGENT [--] [ARG...]",
		Short: "Run an agent in its bottle",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.resume != "" {
				if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
					return resumeAlone()
				}
				return a.upAgain(cmd.Context(), cmd.Flags(), &o, args)
			}
			return a.up(cmd.Context(), cmd.Flags(), &o, args)
		},
		Annotations:       map[string]string{ofAgent: ""},
		ValidArgsFunction: a.completeBottled,
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	fs.BoolVar(&o.plan, "plan", false, "show what would be done, as carboy manifest show does, and run nothing")
	fs.BoolVarP(&o.detach, "detach", "d", false, "leave it running, and print the sandbox's name")
	fs.StringVar(&o.resume, "resume", "", "`NAME` go on in that sandbox, with its last conversation, and name no AGENT")
	fs.StringVar(&o.spec.Workspace, "workspace", "", "`DIR[:rw|:ro]` work on DIR's repository, not on the current directory's; :rw the tree itself")
	fs.BoolVar(&o.ask, "ask", false, "let the agent ask before it acts; otherwise the wall alone is what holds it")
	fs.BoolVar(&o.remote, "remote-control", false, "start it so that it can be led from elsewhere, where it can be")
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `The bottle says of what the sandbox is made, and what may be reached from it; carboy manifest
show says all of it before. The agent works on a copy of the repository of the current
directory, at /workspace. It is set up by the daemon, step by step: where one fails, nothing is
left, and carboy logs NAME has the steps of one that went well.

A terminal that is closed leaves the agent running: carboy attach NAME brings it back. carboy
stop, start, rm and snapshot create are as for any sandbox. ARGs are the agent's own; carboy's
flags stand before AGENT. The exit code is the agent's.`,
		examples: []string{"carboy up fixer", "carboy up --plan fixer", "carboy up -d fixer -- -p 'fix the tests'", "carboy up --resume fixer-k3x9a"},
		exits:    exitDocsCommand[:],
	})
}

func (a *app) up(ctx context.Context, fs *pflag.FlagSet, o *upOptions, args []string) error {
	if len(args) == 0 || args[0] == "--" {
		return usage.Errorf("up: AGENT is missing").WithHint("carboy manifest ls")
	}
	name := args[0]
	args, err := o.behind(fs, args[1:])
	if err != nil {
		return err
	}
	m, err := a.agentNamed(ctx, name)
	if err != nil {
		return err
	}
	if o.plan {
		return a.showPlan(m, name+"-"+anyone)
	}
	p, err := m.Plan(manifest.NewSlug(name))
	if err != nil {
		return err
	}
	if err := p.Runnable(); err != nil {
		return err
	}
	g := &agentRun{app: a, p: m.Provider, up: true, plan: p, o: o.agentOptions, args: args}
	g.fromPlan()
	if err := g.flags(fs); err != nil {
		return err
	}
	for _, w := range p.Warnings() {
		a.NoteReason("warning", w)
	}
	return g.start(ctx, fs)
}

// behind reads flags of carboy's that stand behind the agent, and returns the agent's own words.
func (o *upOptions) behind(fs *pflag.FlagSet, args []string) ([]string, error) {
	ours, own := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		ours, own = args[:i], args[i+1:]
	}
	if len(ours) == 0 {
		return own, nil
	}
	if err := fs.Parse(ours); err != nil {
		return nil, usage.Errorf("up: %w", err).WithHint("the agent's own flags stand after --")
	}
	if o.resume != "" {
		return nil, resumeAlone()
	}
	return append(fs.Args(), own...), nil
}

func resumeAlone() error {
	return usage.Errorf("up: --resume names the sandbox, and no AGENT can stand beside it").WithHint("the agent's own words stand after --")
}

// upAgain goes on in a sandbox.
func (a *app) upAgain(ctx context.Context, fs *pflag.FlagSet, o *upOptions, args []string) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	sb, err := svc.Get(ctx, o.resume)
	if err != nil {
		return err
	}
	g := &agentRun{app: a, up: true, o: o.agentOptions, args: args}
	if g.sb = sb; sb.Agent == nil || sb.Agent.Name == "" {
		g.p = &provider.Provider{}
		return g.ours()
	}
	if g.p, err = provider.Find(a.env.AgentsDir, sb.Agent.Provider); err != nil {
		return err
	}
	if err := g.flags(fs); err != nil {
		return err
	}
	if g.p.Program == "" && len(g.args) == 0 {
		g.args = sb.Agent.Command // what was typed
	}
	return g.start(ctx, fs)
}

// fromPlan is what the bottle says, in the words of flags.
func (g *agentRun) fromPlan() {
	c, s := g.plan.Request(), &g.o.spec
	s.Isolation = strings.Join(append([]string{c.Isolation}, c.Stronger...), ",")
	s.Image, s.ImageNamed, s.Template, s.User, s.ReadOnly = c.Image, c.Image != sandbox.DefaultImage, c.Template, c.User, c.ReadOnlyRoot
	s.Network, s.Base, s.Caches = c.Network, c.Policy, c.Caches
	s.SecretOf = "the bottle " + g.plan.Bottle
	for _, sec := range c.Secrets {
		s.Secrets = append(s.Secrets, sec.Name)
	}
	s.CPUs, s.Memory, s.PIDs, s.Disk = c.Limits.CPUs, c.Limits.Memory, c.Limits.PIDs, c.Limits.Disk
	s.Env = launch.Env{}
	for k, v := range c.Env {
		s.Env.Vars = append(s.Env.Vars, k+"="+v)
	}
}

// anyone stands for the five characters that are drawn for a sandbox.
const anyone = "xxxxx"

// agentNamed is the user's agent of that name, or else one of the repository of the current
// directory. What is wrong with others is not asked about.
func (a *app) agentNamed(ctx context.Context, name string) (*manifest.Manifest, error) {
	x, _ := a.loadManifest(ctx, false)
	m, err := x.Manifest(name)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return m, manifest.Told(err)
	}
	x, err = a.loadManifest(ctx, true)
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return nil, err // of the repository, and not of a file
	}
	m, err = x.Manifest(name)
	return m, manifest.Told(err)
}

// showPlan shows what would be done.
func (a *app) showPlan(m *manifest.Manifest, slug string) error {
	p, err := m.Plan(slug)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(p)
	}
	_, err = console.Output(a.Stdout).Write([]byte(p.Text()))
	return err
}
