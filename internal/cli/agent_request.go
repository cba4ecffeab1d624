package cli

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// find finds the program and the credentials, before anything is made.
func (g *agentRun) find(ctx context.Context) (err error) {
	// Without a key nothing is started: the environment is looked at first.
	g.out = g.outside(nil, g.o.spec.Secrets)
	early, noKey := g.p.Grant(g.out)
	if g.svc, err = g.service(ctx); err != nil {
		return err
	}
	secrets, err := g.svc.Secrets(ctx)
	if err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
		return err
	}
	for i := range secrets {
		g.out.Stored = append(g.out.Stored, secrets[i].Name)
	}
	if g.plan != nil { // the bottle says by what its models know the user
		g.grant = g.granted(g.o.spec.Secrets)
		g.takeLogin()
		return g.findProgram()
	}
	if g.grant, err = g.p.Grant(g.out); err != nil {
		return err
	}
	if noKey == nil && len(g.grant.Ways) == 0 {
		g.grant = early
	}
	return g.findProgram()
}

func (g *agentRun) findProgram() (err error) {
	s := &g.o.spec
	g.in.Home = bottle.Home(s.User)
	switch {
	case g.p.Program == "":
		return nil // it is in the arguments
	case s.Image != "" && s.Image != sandbox.DefaultImage, s.Template != "", s.Snapshot != "":
		g.program = []string{g.p.Program}
		return nil
	case g.o.version == "":
		if g.install, err = g.p.FindProgram(g.out, g.in.Home); err != nil {
			return err
		}
		if g.install != nil {
			g.program = g.install.Argv
			return nil
		}
	}
	return g.choosePackage()
}

// request is what the sandbox is asked for by.
func (g *agentRun) request() (*launch.Request, error) {
	s := &g.o.spec
	if err := g.reach(s); err != nil {
		return nil, err
	}
	if g.install != nil {
		for _, m := range g.install.Shown {
			s.Mounts = append(s.Mounts, m.Source+":"+m.Target+":ro")
		}
	}
	asked, err := s.Env.Collect(g.LookupEnv)
	if err != nil {
		return nil, err
	}
	g.in.Env = asked
	g.in.Ways, g.in.Facts = g.grant.Ways, g.grant.Facts
	g.in.Bypass = !g.o.ask
	if g.in.Env, err = g.p.GuestEnv(&g.in); err != nil {
		return nil, err
	}
	if err := g.keepHome(s); err != nil {
		return nil, err
	}
	if g.memorySaid = s.Memory != 0 || g.plan != nil; !g.memorySaid {
		s.Memory = launch.AgentMemory()
	}
	if _, err := launch.ParsePorts(s.Publish); err != nil {
		return nil, usage.Errorf("--publish: %v", err).WithHint("the agent's own flags stand after --: %s -- -p %s", runCommand(g.p.Name, ""), shell.Word(s.Publish[0]))
	}
	req, err := s.Request(g.LookupEnv, g.Note)
	if err != nil {
		return nil, err
	}
	req.Env = g.in.Env
	if g.plan != nil {
		req.Name, req.Limits.Inodes = g.plan.Slug, g.plan.Create.Limits.Inodes
		if req.Remotes, err = g.plan.RemotesOf(g.Getenv("HOME"), g.Getenv("SSH_AUTH_SOCK")); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// reach is what the agent needs, besides what flags allow.
func (g *agentRun) reach(s *launch.Spec) error {
	if g.plan != nil {
		return nil
	}
	if s.Network == sandbox.NetworkOff {
		if len(g.p.Access.Ways) > 0 && !g.p.Access.None {
			return usage.Errorf("--network off: %s needs to reach its model", g.p.Name).WithHint("leave it out")
		}
		g.grant = &provider.Grant{}
		return nil
	}
	rules, err := g.grant.Rules()
	if err != nil {
		return err
	}
	s.Base = g.p.Base(rules)
	for _, f := range g.grant.Secrets {
		switch {
		case f.Value != nil:
			v := api.SecretValue(*f.Value)
			s.Given = append(s.Given, api.SandboxSecret{Name: f.Name, Value: &v})
		case !slices.Contains(g.out.Given, f.Name):
			s.Secrets = append(s.Secrets, f.Name)
		}
	}
	return nil
}
