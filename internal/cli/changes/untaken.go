package changes

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Untaken is what would be lost with a sandbox.
type Untaken string

// What can be lost: nothing, files, or no file but commits.
const (
	AllTaken Untaken = ""
	Files    Untaken = "changes"
	Commits  Untaken = "commits"
	// Submodules: what became of the repositories of submodules, of which nobody takes commits,
	// is not known.
	Submodules Untaken = "commits of submodules"
)

// Untaken says what sb has that was not taken. What the repository ignores is nothing, and
// so is what git keeps of commits that the directory's own repository has. It looks no
// further than to the first file.
func (r *Reviewer) Untaken(ctx context.Context, svc *client.Client, sb *api.Sandbox) (Untaken, error) {
	if sandbox.WorkspaceMode(sb.Workspace.Mode) != sandbox.WorkspaceCOW {
		return AllTaken, nil
	}
	base, err := workspace.OpenBase(sb.Workspace.Source)
	if err != nil {
		return AllTaken, err
	}
	defer func() { _ = base.Close() }() // a directory
	opts, err := r.compareOptions(ctx, base, ofSandbox(sb), FilterOptions{}, nil)
	if err != nil {
		return AllTaken, err
	}
	req := request(false, nil, opts.Filter)
	req.Origins = true // or what the sandbox deleted of what was taken would not count
	stream, err := svc.Changes(ctx, sb.ID, req)
	if err != nil {
		return AllTaken, usage.Named(err, sb.ID, sb.Name)
	}
	defer func() { _ = stream.Close() }() // what is left of it is not needed
	kept := gitKeeps(ofSandbox(sb))
	committed, below := false, false
	differs, err := workspace.Differs(ctx, base, stream, opts, func(path string) bool {
		committed = committed || kept(path)
		below = below || ofSubmodule(path)
		return !kept(path)
	})
	switch {
	case err != nil:
		return AllTaken, err
	case differs:
		return Files, nil
	case !committed:
		return AllTaken, nil
	}
	taken, err := r.fetched(ctx, svc, ofSandbox(sb))
	switch {
	case err != nil:
		return AllTaken, err
	case !taken:
		return Commits, nil
	case below:
		return Submodules, nil
	}
	return AllTaken, nil
}

// ofSubmodule reports whether a file names what the repository of a submodule would not lose.
func ofSubmodule(p string) bool {
	rest, ok := strings.CutPrefix(p, ".git/modules/")
	if !ok || strings.Contains(rest, "/refs/remotes/") {
		return false
	}
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	return strings.Contains(rest, "/refs/") || !strings.Contains(rest, "/logs/") && (name == "HEAD" || name == "packed-refs")
}

// gitKeeps returns what tells which files inside are git's own, in which it keeps commits:
// where the directory's .git is a file that leads elsewhere, all of the .git that the sandbox
// has in its place.
func gitKeeps(sb subject) func(path string) bool {
	fi, err := os.Lstat(filepath.Join(sb.Dir, ".git"))
	if err != nil || fi.IsDir() {
		return ofCommits
	}
	return func(p string) bool { return p == ".git" || strings.HasPrefix(p, ".git/") }
}

// ofCommits reports whether git itself writes a file when somebody commits: by itself it
// is of no use to another repository.
func ofCommits(p string) bool {
	rest, ok := strings.CutPrefix(p, ".git/")
	first, _, _ := strings.Cut(rest, "/")
	return p == ".git" || p == ".git/info/refs" || ok && first != "hooks" && first != "config" && first != "info"
}

// gitRefs is where a repository names what it would not lose.
var gitRefs = []string{
	".git/HEAD", ".git/packed-refs", ".git/refs", ".git/reftable", ".git/worktrees", stashes,
	".git/MERGE_AUTOSTASH", ".git/rebase-merge/autostash", ".git/rebase-apply/autostash",
}

// stashes are those of which refs/stash is the last.
const stashes = ".git/logs/refs/stash"

// fetched reports whether the repository that sb's workspace is of has all that is named by
// a ref inside. Where it can't be asked, it has not.
func (r *Reviewer) fetched(ctx context.Context, svc *client.Client, sb subject) (bool, error) {
	stream, err := sb.changes(ctx, svc, request(true, gitRefs, sandbox.ChangesFilter{}))
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }() // what is left of it is not needed
	ids, ok, err := readRefs(stream)
	if err != nil || !ok {
		return false, err
	}
	git, err := jail.Find(ctx, r.Getenv("PATH"))
	if err != nil {
		return false, nil
	}
	repo, err := quarantine.Open(ctx, git, sb.Dir)
	if err != nil {
		return false, nil
	}
	has, err := repo.Has(ctx, ids)
	return has && err == nil, nil
}

const (
	maxRefLine = 4 << 10
	maxRefIDs  = 100_000
)

// readRefs returns which objects the files of refs in a stream name. What can't be read as
// git writes it is not ok. Refs of remotes name what others have.
func readRefs(stream io.Reader) (ids []string, ok bool, _ error) {
	in, err := workspace.NewReader(stream)
	if err != nil {
		return nil, false, err
	}
	for {
		c, err := in.Next()
		if errors.Is(err, io.EOF) {
			return ids, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		if strings.HasPrefix(c.Path, ".git/refs/remotes/") || c.Kind == workspace.Dir || c.Kind == workspace.Deleted {
			continue
		}
		if strings.HasPrefix(c.Path, ".git/worktrees/") && !strings.HasSuffix(c.Path, "/HEAD") {
			continue
		}
		if c.Kind != workspace.File || c.Body == nil {
			return nil, false, nil
		}
		if ids, ok = refIDs(ids, c.Path, c.Body); !ok {
			return nil, false, nil
		}
	}
}

// refIDs adds the objects that a file of refs names: one, or one in each line.
func refIDs(ids []string, path string, file io.Reader) (_ []string, ok bool) {
	packed := strings.HasSuffix(path, "/packed-refs")
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxRefLine)
	for n := 0; lines.Scan(); n++ {
		line := lines.Text()
		id, rest, _ := strings.Cut(line, " ")
		switch {
		case len(ids) == maxRefIDs:
			return nil, false
		case path == stashes:
			id, _, _ = strings.Cut(rest, " ")
		case packed && (line == "" || line[0] == '#' || strings.HasPrefix(rest, "refs/remotes/")):
			continue
		case packed:
			id = strings.TrimPrefix(id, "^")
		case n > 0:
			return nil, false // no file of git's
		case id == "ref:":
			continue
		default:
			id = line
		}
		ids = append(ids, id)
	}
	return ids, lines.Err() == nil
}
