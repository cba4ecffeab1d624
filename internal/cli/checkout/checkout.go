// Package checkout makes git ready in a new sandbox whose workspace is a view of a
// repository's tree: with a git directory of the sandbox's own where the repository's lies
// elsewhere, and with the user's name.
//
// It refuses to do so where the workspace is the user's own tree. What the sandbox says is
// escaped and cut short.
//
// Prepare makes it ready for an agent, whose work is in the tree and is kept there: the git directory
// is a part of the view. Beside makes it ready for a command of whatever kind, and changes nothing
// in the view: the git directory is where .git leads.
package checkout

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// gitPlace is where the repository of a sandbox's workspace lies, inside.
const gitPlace = repository.Inside + "/.git"

// maxSaid is how much is kept of what a command of ours says inside.
const maxSaid = 4 << 10

// gitSetup tells git inside, as the sandbox's user, that the workspace is to be worked in
// whoever owns it, and then the name and the e-mail of who works, where there are any. Inodes,
// owners and times of change are others in a view than in the index: without a word git would
// read each file of a large tree at its first look. Where there is no git, it has nothing to do.
const gitSetup = `command -v git >/dev/null 2>&1 || exit 0
git config --global --replace-all safe.directory '*' || exit
git config --global core.checkStat minimal && git config --global core.trustctime false || exit
[ -z "$1" ] || git config --global --replace-all user.name "$1" || exit
[ -z "$2" ] || git config --global --replace-all user.email "$2"`

// Prepare makes git ready in a new sandbox whose workspace is repo's tree and that has its
// Mounts, before anything else runs there.
func Prepare(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository) error {
	if repo.Needed() {
		if err := give(ctx, svc, sb, repo); err != nil {
			return err
		}
	}
	said := excerpt.New(maxSaid/4, maxSaid-maxSaid/4)
	end, err := svc.Exec(ctx, sb.ID, client.ExecOptions{
		Command: &guestv1.Command{Argv: []string{"/bin/sh", "-c", gitSetup, "sh", repo.Name, repo.Email}, Cwd: "/"},
		Stderr:  said,
	})
	switch {
	case err != nil:
		return fmt.Errorf("set git's name and e-mail inside: %w", err)
	case end.GetReason() == guestv1.Reason_REASON_NOT_STARTED: // an image without a shell has no git
		return nil
	case exit.Of(end) != exit.OK:
		text, _ := said.Excerpt().Whole()
		return sandbox.Errorf(sandbox.Internal, "git's name and e-mail could not be set inside: %s", term.Escape(strings.TrimSpace(string(text))))
	}
	return nil
}

// give puts a git directory of the sandbox's own in the place of a .git that names
// one outside the tree. The tree itself must be a view: nothing of the user's is replaced.
func give(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository) error {
	if sb.Workspace.Mode != string(sandbox.WorkspaceCOW) {
		return sandbox.Errorf(sandbox.Unsupported, "%s: its repository lies in %s, and git works with it in a view alone", repo.Top, repo.GitDir).
			WithHint("leave out :rw and :ro")
	}
	if err := svc.RemoveFile(ctx, sb.ID, gitPlace); err != nil {
		return fmt.Errorf("make place for a git directory inside: %w", err)
	}
	return upload(ctx, svc, sb, repo, gitPlace, "..")
}

// Beside gives a new sandbox whose workspace is a view of repo's tree, and that has its Mounts, a git
// directory of its own where .git leads: its spec has a directory of its user's own there.
func Beside(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository) error {
	return upload(ctx, svc, sb, repo, repo.NamedInside(), repository.Inside)
}

// upload makes the git directory at, whose tree is tree.
func upload(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository, at, tree string) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := repo.WriteTar(w, "git", tree)
		_ = w.CloseWithError(err) // never fails
		written <- err
	}()
	var left []string
	err := svc.Upload(ctx, sb.ID, client.UploadOptions{
		Path: at, Mode: "as", Skipped: func(s client.Skip) { left = append(left, s.Name+": "+s.Reason) },
	}, r)
	_ = r.Close() // ends the writer where it was not read to its end
	switch werr := <-written; {
	case werr != nil && err == nil, werr != nil && !strings.Contains(werr.Error(), io.ErrClosedPipe.Error()):
		return werr
	case err != nil:
		return fmt.Errorf("make a git directory inside: %w", err)
	case len(left) > 0:
		return sandbox.Errorf(sandbox.Internal, "make a git directory inside: %s", term.Escape(left[0]))
	}
	return nil
}
