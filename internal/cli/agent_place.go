package cli

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// place finds the tree that the agent works on, and what its project asks for.
func (g *agentRun) place(ctx context.Context, fs *pflag.FlagSet) error {
	s := &g.o.spec
	dir, how := s.Workspace, ""
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return err
		}
	} else if named, ok := launch.WorkspaceDir(dir); ok {
		dir, how = named, strings.TrimPrefix(dir, named)
	}
	var err error
	if g.repo, err = repository.Find(ctx, dir); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the repository of %s: %w", shell.Word(dir), err)
	}
	if g.repo.Is() && !g.repo.Commits {
		g.NoteReason("repository", "the repository has no commit yet: all that is there is new to git inside")
	}
	s.Workspace = g.repo.Top + how
	for _, m := range g.repo.Mounts() {
		if !slices.Contains(s.Mounts, m.String()) {
			if m.Borrowed { // a tree that somebody else made may name any repository of the user's
				return sandbox.Errorf(sandbox.Denied, "the repository borrows objects of another, which the agent would read: %s", shell.Word(m.Host)).
					WithHint("--mount %s shows them, if you trust who made this tree; git repack -a -d makes it whole without", shell.Word(m.String()))
			}
			s.Mounts = append(s.Mounts, m.String())
		}
	}
	for _, n := range g.repo.Notes() {
		g.NoteReason("repository", n)
	}
	if n := g.repo.Anonymous(); n != "" && g.plan == nil { // a bottle says itself whom commits are by
		g.NoteReason("repository", n)
	}
	g.in.Workspace, g.in.Dir = repository.Inside, g.repo.Cwd()
	if g.plan != nil { // the bottle says it all
		return nil
	}
	return g.fromProject(ctx, fs, s)
}

// keepHome asks for the directories that outlive the sandbox, for that tree and program, and
// in a bottle for that agent alone.
func (g *agentRun) keepHome(s *launch.Spec) error {
	kept, err := g.p.Kept(&g.in)
	if err != nil || len(kept) == 0 {
		return err
	}
	whose := g.p.Name
	if g.plan != nil {
		whose = g.plan.Home()
	}
	s.Homes = append(s.Homes, whose+"="+strings.Join(kept, ","))
	return nil
}
