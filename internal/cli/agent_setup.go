package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/provider"
)

// newSetUp is what every start of the agent needs.
func (g *agentRun) newSetUp() error {
	text, err := provider.Text(g.p)
	if err != nil {
		return err
	}
	g.setup = &api.SetUp{}
	if g.plan != nil {
		g.setup = g.plan.SetUp()
	}
	g.setup.Agent.Provider, g.setup.Agent.Program, g.setup.Agent.Dir = g.p.Name, append([]string{}, g.program...), g.in.Dir
	s := g.setup
	s.Definition, s.Args, s.Bypass = string(text), g.args, g.in.Bypass
	s.Resume, s.Remote = g.o.resume != "", g.o.remote
	if g.in.Prompt != "" {
		s.Prompt = g.in.Prompt
	}
	s.Facts = provider.FactsOf(g.grant.Ways, g.outside(nil, nil))
	for _, w := range g.grant.Ways {
		s.Ways = append(s.Ways, w.Name)
	}
	if g.o.detach {
		s.Start = g.startAlone()
	}
	return nil
}

// startAlone is with what the daemon starts the agent: with a terminal for who joins it.
func (g *agentRun) startAlone() *api.SetUpStart {
	if g.p.NeedsNoTerminal(g.args) {
		return &api.SetUpStart{}
	}
	size := console.SizeOf(g.Stdin, g.Stdout, g.Stderr)
	st := &api.SetUpStart{Terminal: true, Cols: size.Cols, Rows: size.Rows, Env: map[string]string{}}
	for _, name := range []string{"TERM", "COLORTERM"} {
		if v := g.Getenv(name); v != "" && utf8.ValidString(v) {
			st.Env[name] = v
		}
	}
	return st
}

// describe adds to a create what is done in the sandbox before the agent starts. done removes
// what lies on this machine for that.
func (g *agentRun) describe(req *launch.Request) (done func(), err error) {
	done = func() {}
	if err := g.newSetUp(); err != nil {
		return done, err
	}
	s := g.setup
	req.SetUp = s
	if g.plan == nil {
		s.GitUser = api.GitUser{Name: g.repo.Name, Email: g.repo.Email}
	}
	if g.install != nil {
		for _, c := range g.install.Copied {
			s.Copies = append(s.Copies, api.SetUpCopy(c))
		}
	}
	s.Work = &api.SetUpWork{}
	if !g.repo.Needed() {
		return done, nil
	}
	s.Work.Git, err = g.gitDirectory()
	return func() { _ = os.Remove(s.Work.Git) }, err // what can't be removed is small
}

// gitDirectory writes a git directory for the sandbox to a file, which the daemon reads with the
// user's rights.
func (g *agentRun) gitDirectory() (_ string, err error) {
	if err := os.MkdirAll(g.env.StateDir, 0o700); err != nil {
		return "", fmt.Errorf("make a git directory for the sandbox: %w", err)
	}
	g.sweepGit()
	f, err := os.CreateTemp(g.env.StateDir, gitFiles)
	if err != nil {
		return "", fmt.Errorf("make a git directory for the sandbox: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it was made here
		}
	}()
	return f.Name(), errors.Join(g.repo.WriteTar(f, "git", ".."), f.Close())
}

// gitFiles are what files with git directories are called, and gitKept is for how long one can
// be of a sandbox that is being made.
const (
	gitFiles = "git-*.tar"
	gitKept  = 24 * time.Hour
)

// sweepGit removes those whose client was killed.
func (g *agentRun) sweepGit() {
	files, _ := filepath.Glob(filepath.Join(g.env.StateDir, gitFiles)) // the pattern is good
	for _, f := range files {
		if fi, err := os.Lstat(f); err == nil && g.Now().Sub(fi.ModTime()) > gitKept {
			_ = os.Remove(f) // the next one tries again
		}
	}
}

// granted are the ways in which the models know the user by those secrets, each with all that it
// needs.
func (g *agentRun) granted(secrets []string) *provider.Grant {
	grant := &provider.Grant{}
	for i := range g.p.Access.Ways {
		w := &g.p.Access.Ways[i]
		if !slices.ContainsFunc(w.Secrets, func(s provider.Secret) bool { return !s.Optional && !slices.Contains(secrets, s.Name) }) {
			grant.Ways = append(grant.Ways, w)
		}
	}
	return grant
}

// takeLogin takes the values of the bottle's secrets that the program's own login has, or a variable of
// another name.
func (g *agentRun) takeLogin() {
	found, err := g.p.Grant(g.out)
	if err != nil {
		return // a secret that is nowhere is told of with the others
	}
	s := &g.o.spec
	for _, f := range found.Secrets {
		if f.Value == nil || !slices.Contains(s.Secrets, f.Name) {
			continue
		}
		v := api.SecretValue(*f.Value)
		s.Given = append(s.Given, api.SandboxSecret{Name: f.Name, Value: &v})
		s.Secrets = slices.DeleteFunc(s.Secrets, func(name string) bool { return name == f.Name })
	}
}
