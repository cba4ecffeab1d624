// Package checkout makes git ready in a new sandbox whose workspace is a view of a
// repository's tree that lies elsewhere, for a command of whatever kind: with a git directory of the
// sandbox's own where .git leads, so that nothing in the view is changed. For an agent, whose work is in
// the tree and is kept there, package bottle does it.
//
// What the sandbox says is escaped and cut short.
package checkout

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Beside gives a new sandbox whose workspace is a view of repo's tree, and that has its Mounts, a git
// directory of its own where .git leads: its spec has a directory of its user's own there.
func Beside(ctx context.Context, svc *client.Client, sb *api.Sandbox, repo *repository.Repository) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := repo.WriteTar(w, "git", repository.Inside)
		_ = w.CloseWithError(err) // never fails
		written <- err
	}()
	var left []string
	err := svc.Upload(ctx, sb.ID, client.UploadOptions{
		Path: repo.NamedInside(), Mode: "as", Skipped: func(s client.Skip) { left = append(left, s.Name+": "+s.Reason) },
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
