// Package changes shows what a sandbox changed in its view of a directory, and takes
// it into that directory.
//
// What the sandbox says is compared with the directory as it is now, and shown
// escaped. It refuses to take what was not the same when it was shown, where it can
// be told; what is held back is decided by package workspace. It remembers per
// sandbox and terminal, in files that no link leads elsewhere.
package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Reviewer shows what sandboxes changed, and takes it, as one user.
type Reviewer struct {
	*console.Console
	// Connect returns the client, and starts a daemon where none runs.
	Connect func(ctx context.Context) (*client.Client, error)
	// Volumes says that names are those of volumes.
	Volumes bool
	// StateDir is where it is remembered what was shown and what was written; "" for
	// nowhere. It is the caller's own directory, and made when it is needed.
	StateDir string
}

// changeSet is what a sandbox changed in the view of a directory, compared
// with that directory as it is now.
type changeSet struct {
	*workspace.Diff
	base *workspace.Base
	set  *workspace.Set
}

// close gives back what the comparison held.
func (c *changeSet) close() {
	_ = c.set.Close()  // an unnamed file that was only read
	_ = c.base.Close() // a directory
}

// checkDiffable refuses a sandbox whose workspace has nothing to compare.
func checkDiffable(sb *api.Sandbox) error {
	name := shell.Word(sb.Name)
	switch sandbox.WorkspaceMode(sb.Workspace.Mode) {
	case sandbox.WorkspaceCOW:
		return nil
	case sandbox.WorkspaceWritable:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is %s itself, so its changes are there already", name, shell.Word(sb.Workspace.Source))
	case sandbox.WorkspaceVolume:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is the volume %s, which began empty, so there is nothing to compare it with", name, shell.Word(sb.Workspace.Volume)).
			WithHint("carboy cp %s:/workspace .", name)
	case sandbox.WorkspaceReadOnly:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is read-only, so there are no changes", name)
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is its own, so there is nothing to compare it with", name).
		WithHint("carboy cp %s:/workspace .", name)
}

// diffable finds what is named, whose changes at and below paths can be shown or taken.
func (r *Reviewer) diffable(ctx context.Context, name string, o FilterOptions, paths []string) (*client.Client, subject, error) {
	if err := errors.Join(workspace.CheckPaths(paths), o.check()); err != nil {
		return nil, subject{}, err
	}
	svc, err := r.Connect(ctx)
	if err != nil {
		return nil, subject{}, err
	}
	find := r.sandbox
	if r.Volumes {
		find = r.volume
	}
	s, err := find(ctx, svc, name)
	return svc, s, err
}

// sandbox finds a sandbox with changes. Of one whose workspace is a volume they are the volume's.
func (r *Reviewer) sandbox(ctx context.Context, svc *client.Client, name string) (subject, error) {
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return subject{}, err
	}
	if sandbox.WorkspaceMode(sb.Workspace.Mode) == sandbox.WorkspaceVolume {
		switch v, err := svc.Volume(ctx, sb.Workspace.Volume); {
		case err == nil && v.From != "":
			return ofVolume(v), nil
		case err != nil && sandbox.KindOf(err) != sandbox.NotFound:
			return subject{}, err
		}
	}
	return ofSandbox(sb), checkDiffable(sb)
}

// volume finds a volume that began as a copy.
func (r *Reviewer) volume(ctx context.Context, svc *client.Client, name string) (subject, error) {
	v, err := svc.Volume(ctx, name)
	switch {
	case err != nil:
		return subject{}, err
	case v.From == "":
		return subject{}, sandbox.Errorf(sandbox.Conflict, "volume %s: it began empty, so there is no directory to compare it with", shell.Word(v.Name)).
			WithHint("carboy volume export %s DIR writes all that it has", shell.Word(v.Name))
	}
	return ofVolume(v), nil
}

// loadChanges reads the changes of sb at and below paths that o leaves, with those contents
// that a patch needs where content is set. Those wait in a file without a name in the directory
// for temporary files.
func (r *Reviewer) loadChanges(ctx context.Context, svc *client.Client, sb subject, o FilterOptions, paths []string, content bool) (*changeSet, error) {
	base, err := workspace.OpenBase(sb.Dir)
	if err != nil {
		return nil, err
	}
	opts, err := r.compareOptions(ctx, base, sb, o, paths)
	var set *workspace.Set
	if err == nil {
		req := request(content, paths, opts.Filter)
		req.Origins, req.Selves = true, len(opts.Applied) > 0
		set, err = readChanges(ctx, svc, sb, req)
	}
	if err != nil {
		_ = base.Close()
		return nil, err
	}
	c := &changeSet{base: base, set: set}
	if c.Diff, err = workspace.Compare(ctx, base, set, opts); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// compareOptions say what of sb's changes counts.
func (r *Reviewer) compareOptions(ctx context.Context, base *workspace.Base, sb subject, o FilterOptions, paths []string) (c workspace.CompareOptions, err error) {
	c.Paths = paths
	if c.Filter, err = r.filter(ctx, base, o); err != nil {
		return c, err
	}
	if c.Applied, err = r.loadMarks(sb.ID, base); err != nil {
		return c, err
	}
	synced, err := r.loadSynced(sb.ID)
	if err == nil {
		c.Brought = synced.Brought
	}
	return c, err
}

// tempHint is what to do where no temporary file can be made.
const tempHint = "set TMPDIR to a directory that you can write to"

func readChanges(ctx context.Context, svc *client.Client, sb subject, req api.ChangesRequest) (*workspace.Set, error) {
	var opts workspace.LoadOptions
	if req.Content {
		dir, err := os.Open(os.TempDir())
		if err != nil {
			return nil, usage.Path("the directory for temporary files", os.TempDir(), err).WithHint("%s", tempHint)
		}
		defer func() { _ = dir.Close() }()
		opts.SpoolDir, opts.SpoolHint, opts.Keep = dir, tempHint, workspace.KeepForPatch
	}
	stream, err := sb.changes(ctx, svc, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }() // Load has read it to its end, or failed
	return workspace.Load(ctx, stream, opts)
}

// Count returns how many files sb changed, and how many that the repository ignores.
func (r *Reviewer) Count(ctx context.Context, svc *client.Client, sb *api.Sandbox) (n, ignored int, err error) {
	c, err := r.loadChanges(ctx, svc, ofSandbox(sb), FilterOptions{}, nil, false)
	if err != nil {
		return 0, 0, err
	}
	defer c.close()
	kept := gitKeeps(ofSandbox(sb))
	for i := range c.Items {
		if c.Items[i].Kind != workspace.Dir && !kept(c.Items[i].Path) {
			n++
		}
	}
	return n, int(c.Left.Ignored), nil
}

// Tally returns how many files sb changed, and the paths of those that an apply holds back.
func (r *Reviewer) Tally(ctx context.Context, svc *client.Client, sb *api.Sandbox) (n int, held []string, err error) {
	c, err := r.loadChanges(ctx, svc, ofSandbox(sb), FilterOptions{}, nil, true)
	if err != nil {
		return 0, nil, err
	}
	defer c.close()
	for i := range c.Items {
		switch it := &c.Items[i]; {
		case it.Kind == workspace.Dir || inGit(it.Path):
		case it.Held != "":
			held = append(held, it.Path)
			n++
		default:
			n++
		}
	}
	return n, held, nil
}

// inGit reports whether a path is one of a repository's own files: commits are counted
// apart.
func inGit(p string) bool {
	return p == ".git" || strings.HasPrefix(p, ".git/") || strings.Contains(p, "/.git/")
}

// Paths turns what a user typed into paths below the workspace: the
// sandbox's own name for one is understood, too.
func Paths(args []string) []string {
	paths := make([]string, len(args))
	for i, arg := range args {
		paths[i] = arg
		if rest, ok := strings.CutPrefix(path.Clean(arg), "/workspace"); ok && (rest == "" || rest[0] == '/') {
			paths[i] = path.Clean("." + rest)
		}
	}
	return paths
}
