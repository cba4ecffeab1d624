package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/checkout"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// reasonRepository is what programs know notes on a workspace's repository by.
const reasonRepository = "repository"

// elsewhere returns the repository of the directory that is to be the workspace, where its .git names
// a directory outside, as in a linked worktree or a submodule, and has spec show what git needs of
// it. Where that is not to be shown, or can't be, a line says why, and it returns nil: the
// sandbox is made without.
func (a *app) elsewhere(ctx context.Context, spec *launch.Spec) *repository.Repository {
	dir, ok := launch.WorkspaceDir(spec.Workspace)
	if !ok || dir == "" {
		return nil
	}
	if fi, err := os.Lstat(filepath.Join(dir, ".git")); err != nil || fi.IsDir() {
		return nil
	}
	none := func(why string) *repository.Repository {
		a.NoteReason(reasonRepository, "git finds no repository inside: "+why)
		return nil
	}
	repo, err := repository.Find(ctx, dir)
	switch {
	case err != nil: // the word of the tree alone: whoever made it may have named any directory
		return none(err.Error())
	case !repo.Outside:
		return nil
	case spec.Workspace != dir:
		return none("it lies in " + shell.Word(repo.CommonDir) + ", and is shown with a view alone: --workspace " + shell.Word(dir) + " without " + strings.TrimPrefix(spec.Workspace, dir))
	case repo.NamedInside() == "":
		return none("it lies in " + shell.Word(repo.CommonDir) + ", a place that a sandbox has for itself: git worktree move, or a clone, takes it elsewhere")
	}
	switch flag, around := spec.Meets(repo.NamedInside()); {
	case around && strings.HasPrefix(flag, "--mount "):
		return nil // the user shows what git looks for, as it is
	case flag != "":
		return none("its place, " + shell.Word(repo.NamedInside()) + ", has to be free: leave out " + flag)
	}
	mounts := repo.Mounts()
	for _, m := range mounts {
		if m.Borrowed && !slices.Contains(spec.Mounts, m.String()) {
			return none("it borrows the objects of another, which are shown if you say so: --mount " + shell.Word(m.String()))
		}
	}
	for _, m := range mounts {
		if !slices.Contains(spec.Mounts, m.String()) {
			spec.Mounts = append(spec.Mounts, m.String())
		}
	}
	spec.Own = append(spec.Own, repo.NamedInside())
	return repo
}

// makeWith is makeSandbox for a sandbox that has the place for a git directory for which elsewhere
// returned repo; nil: it has none.
func (a *app) makeWith(ctx context.Context, svc *client.Client, req *launch.Request, repo *repository.Repository) (*api.Sandbox, error) {
	sb, err := a.makeSandbox(ctx, svc, req)
	if repo != nil && sandbox.KindOf(err) == sandbox.Invalid && strings.Contains(err.Error(), repo.NamedInside()) {
		return sb, sandbox.Errorf(sandbox.Invalid, "%w; git would look there, for the repository of %s lies there on this machine", err, shell.Word(repo.Top)).
			WithHint("git worktree move, or a clone, takes it elsewhere; without git inside: --workspace %s:ro", shell.Word(repo.Top))
	}
	return sb, err
}

// giveRepository makes git ready in a sandbox for which elsewhere returned repo, and says what is
// shown of it. A sandbox is of use without: a line says what is wrong.
func (a *app) giveRepository(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository) {
	if repo == nil {
		return
	}
	switch err := checkout.Beside(ctx, svc, sb, repo); {
	case err == nil:
		a.NoteReason(reasonRepository, "the repository of this directory lies in "+repo.CommonDir+": its objects are shown inside too, read-only, and commits made inside stay there")
	case ctx.Err() == nil:
		a.NoteReason(reasonRepository, "git finds no repository inside: "+err.Error())
	}
}
