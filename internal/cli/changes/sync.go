package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// SyncOptions say what a sync brings.
type SyncOptions struct {
	Watch   bool // go on until it is interrupted
	Ignored bool // also what the repository ignores
}

// maxNamed is how many paths one request for changes names; for more it names none.
const maxNamed = 1000

// Sync brings what changed in the directory at and below paths into the sandbox name,
// unless the sandbox changed it too: that is left, named, and a Conflict at the end.
func (r *Reviewer) Sync(ctx context.Context, o SyncOptions, name string, paths []string) error {
	if err := workspace.CheckPaths(paths); err != nil {
		return err
	}
	svc, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := checkSyncable(sb); err != nil {
		return err
	}
	base, err := workspace.OpenBase(sb.Workspace.Source)
	if err != nil {
		return err
	}
	defer func() { _ = base.Close() }() // a directory
	unlock, err := r.lock(syncedDir, "sync", ofSandbox(sb))
	if err != nil {
		return err
	}
	defer unlock()
	s := &syncer{Reviewer: r, svc: svc, sb: sb, base: base, o: o, paths: paths}
	if err := s.checkPaths(); err != nil {
		return err
	}
	if o.Watch {
		return s.watch(ctx)
	}
	res, err := s.pass(ctx, nil)
	if res != nil {
		if werr := s.show(res); err == nil {
			err = werr
		}
	}
	if err == nil && len(res.Conflicts) > 0 {
		err = sandbox.Errorf(sandbox.Conflict, "sync: %s changed on both sides, and left as it is in the sandbox", console.Count(len(res.Conflicts), "path")).
			WithHint("carboy diff %[1]s shows the sandbox's; to overwrite one with yours: carboy cp PATH %[1]s:/workspace/PATH", shell.Word(sb.Name))
	}
	return err
}

// checkSyncable refuses a sandbox whose workspace is no view.
func checkSyncable(sb *api.Sandbox) error {
	name := shell.Word(sb.Name)
	switch sandbox.WorkspaceMode(sb.Workspace.Mode) {
	case sandbox.WorkspaceCOW:
		return nil
	case sandbox.WorkspaceWritable, sandbox.WorkspaceReadOnly:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is %s itself, so edits are there already", name, shell.Word(sb.Workspace.Source))
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is no view of a directory", name).
		WithHint("carboy cp PATH %s:/workspace", name)
}

// syncer brings edits into one sandbox.
type syncer struct {
	*Reviewer
	svc   *client.Client
	sb    *api.Sandbox
	base  *workspace.Base
	o     SyncOptions
	paths []string               // what was named
	rules *workspace.IgnoreRules // of the base; nil: not read yet, or not as they are now
}

// ignored returns what the base ignores, and what of that is left out.
func (s *syncer) ignored(ctx context.Context) (_ *workspace.IgnoreRules, f sandbox.ChangesFilter, err error) {
	if s.rules == nil {
		if s.rules, err = s.base.IgnoreRules(ctx); err != nil {
			return nil, f, err
		}
		for _, n := range s.rules.Notes {
			s.Note(n)
		}
	}
	if !s.o.Ignored {
		f = s.rules.Filter
	}
	return s.rules, f, nil
}

// syncJSON is the answer of sync --json; with --watch there is one for each time that something was
// brought.
type syncJSON struct {
	Name      string                   `json:"name"`
	Brought   []string                 `json:"brought"`
	Deleted   []string                 `json:"deleted"`
	Conflicts []workspace.SyncConflict `json:"conflicts"` // left as they are
}

// checkPaths refuses a path at which there is and was nothing.
func (s *syncer) checkPaths() error {
	known, err := s.loadSynced(s.sb.ID)
	if err != nil {
		return err
	}
	for _, p := range s.paths {
		if _, err := s.base.Stamp(p); err == nil || p == "." {
			continue
		}
		if !slices.ContainsFunc(known.Seen, func(m workspace.Mark) bool { return within(m.Path, []string{p}) }) {
			return sandbox.Errorf(sandbox.Invalid, "path %q: nothing is there", p).
				WithHint("paths are relative to the workspace: src/main.go")
		}
	}
	return nil
}

// within reports whether p is one of paths, or below one; below none it is where there are none.
func within(p string, paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(sel string) bool {
		sel = strings.TrimSuffix(sel, "/")
		return sel == "." || p == sel || strings.HasPrefix(p, sel+"/")
	})
}

// pass brings what changed at and below paths; none: those that were named.
func (s *syncer) pass(ctx context.Context, paths []string) (*syncJSON, error) {
	if len(paths) == 0 {
		paths = s.paths
	}
	known, err := s.loadSynced(s.sb.ID)
	if err != nil {
		return nil, err
	}
	rules, filter, err := s.ignored(ctx)
	if err != nil {
		return nil, err
	}
	scan, err := s.base.Scan(ctx, filter, paths)
	if err != nil {
		return nil, err
	}
	found, gone, err := s.candidates(ctx, known, scan, rules, paths)
	if err != nil || len(found)+len(gone) == 0 {
		s.see(known, scan, paths, nil)
		return s.result(), errors.Join(err, s.keepFirst(known))
	}
	plan, err := s.plan(ctx, known, filter, found, gone)
	if err != nil {
		return nil, err
	}
	return s.carry(ctx, known, scan, paths, plan)
}

func (s *syncer) result() *syncJSON {
	return &syncJSON{Name: s.sb.Name, Brought: []string{}, Deleted: []string{}, Conflicts: []workspace.SyncConflict{}}
}

// keepFirst notes what a first pass saw, where that brought nothing.
func (s *syncer) keepFirst(known *synced) error {
	if known.noted {
		return nil
	}
	return s.saveSynced(s.sb.ID, known)
}

// candidates returns what changed in the directory since it was seen last.
func (s *syncer) candidates(ctx context.Context, known *synced, scan *workspace.Scanned, rules *workspace.IgnoreRules, paths []string) (found []workspace.Found, gone []string, err error) {
	var since time.Time
	if len(known.Seen) == 0 {
		if since, err = s.since(ctx); err != nil {
			return nil, nil, err
		}
		before := slices.Clone(rules.Indexed)
		for _, b := range known.Pending {
			before = append(before, b.Path)
		}
		gone, err = s.base.Gone(slices.DeleteFunc(before, func(p string) bool { return !within(p, paths) }))
		return workspace.ChangedSince(scan.Files, nil, since), gone, err
	}
	var missing []string
	have := make(map[string]bool, len(scan.Files))
	for _, f := range scan.Files {
		have[f.Path] = true
	}
	for _, m := range known.Seen {
		if !have[m.Path] && within(m.Path, paths) {
			missing = append(missing, m.Path)
		}
	}
	gone, err = s.base.Gone(missing)
	return workspace.ChangedSince(scan.Files, known.Seen, since), gone, err
}

// since is when the view was made.
func (s *syncer) since(ctx context.Context) (time.Time, error) {
	stream, err := s.svc.Changes(ctx, s.sb.ID, api.ChangesRequest{Paths: []string{".git/carboy-none"}})
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = stream.Close() }() // its header is all that is read
	in, err := workspace.NewReader(stream)
	if err != nil {
		return time.Time{}, err
	}
	return in.Header().Since, nil
}

func (s *syncer) plan(ctx context.Context, known *synced, filter sandbox.ChangesFilter, found []workspace.Found, gone []string) (*workspace.SyncPlan, error) {
	req := request(false, nil, filter)
	if len(found)+len(gone) <= maxNamed {
		req = request(false, gone, sandbox.ChangesFilter{})
		for _, f := range found {
			req.Paths = append(req.Paths, f.Path)
		}
	}
	set, err := readChanges(ctx, s.svc, ofSandbox(s.sb), req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = set.Close() }() // it has no file
	marks, err := s.loadMarks(s.sb.ID, s.base)
	if err != nil {
		return nil, err
	}
	return workspace.PlanSync(ctx, s.base, set, workspace.CompareOptions{Brought: known.Brought, Applied: marks}, found, gone)
}

// carry does what plan says, and notes it.
func (s *syncer) carry(ctx context.Context, known *synced, scan *workspace.Scanned, paths []string, plan *workspace.SyncPlan) (*syncJSON, error) {
	res := s.result()
	res.Conflicts = append(res.Conflicts, plan.Conflicts...)
	known.bring(plan.Same)
	var failed error
	for _, p := range plan.Delete {
		if failed = s.svc.RemoveFile(ctx, s.sb.ID, sandbox.WorkspacePath+"/"+p); failed != nil {
			break
		}
		known.bring([]workspace.Brought{{Mark: workspace.Mark{Path: p}, Kind: workspace.Deleted}})
		res.Deleted = append(res.Deleted, p)
	}
	var brought []workspace.Brought
	if failed == nil && len(plan.Bring) > 0 {
		brought, failed = s.bring(ctx, known, plan.Bring)
	}
	if failed == nil {
		known.Pending = nil
		known.bring(brought)
		for _, b := range brought {
			res.Brought = append(res.Brought, b.Path)
		}
		s.see(known, scan, paths, res.Conflicts)
	}
	return res, errors.Join(failed, s.saveSynced(s.sb.ID, known))
}

// bring uploads found, and notes before what that is: or after a sync that was killed, what it
// brought would be taken for the sandbox's.
func (s *syncer) bring(ctx context.Context, known *synced, found []workspace.Found) (_ []workspace.Brought, err error) {
	if known.Pending, err = s.base.Now(ctx, found); err != nil {
		return nil, err
	}
	if err := s.saveSynced(s.sb.ID, known); err != nil {
		return nil, err
	}
	return s.upload(ctx, found)
}

// upload sends found into the sandbox.
func (s *syncer) upload(ctx context.Context, found []workspace.Found) ([]workspace.Brought, error) {
	pr, pw := io.Pipe()
	var brought []workspace.Brought
	written := make(chan error, 1)
	go func() {
		var err error
		brought, err = s.base.WriteSync(ctx, pw, found)
		pw.CloseWithError(err) // nil: the end of the archive
		written <- err
	}()
	progress := s.NewProgress()
	defer progress.Stop()
	err := s.svc.Upload(ctx, s.sb.ID, client.UploadOptions{Path: sandbox.WorkspacePath}, progress.Reader(pr))
	_ = pr.CloseWithError(io.ErrClosedPipe) // or the writer would wait for ever
	werr := <-written
	if err != nil {
		return brought, fmt.Errorf("sync: %w", err)
	}
	return brought, werr
}

// see notes what the directory has at and below paths. What is in conflict stays as it was seen before, so that it is
// looked at again.
func (s *syncer) see(known *synced, scan *workspace.Scanned, paths []string, conflicts []workspace.SyncConflict) {
	left := map[string]bool{}
	for _, c := range conflicts {
		left[c.Path] = true
	}
	before := map[string]workspace.Mark{}
	var seen []workspace.Mark
	for _, m := range known.Seen {
		before[m.Path] = m
		if left[m.Path] || !within(m.Path, paths) {
			seen = append(seen, m)
		}
	}
	torn := map[string]bool{}
	for _, b := range known.Brought {
		torn[b.Path] = b.Kind != workspace.Deleted && b.Mark == workspace.Mark{Path: b.Path}
	}
	for _, f := range scan.Files {
		switch {
		case torn[f.Path]:
			f.Mark = workspace.Mark{Path: f.Path} // so that it is looked at again
		case left[f.Path]:
			if _, ok := before[f.Path]; ok {
				continue
			}
			f.Mark = workspace.Mark{Path: f.Path}
		}
		seen = append(seen, f.Mark)
	}
	known.Seen = seen
}

// show says what was brought on stdout, and what was left on stderr.
func (s *syncer) show(res *syncJSON) error {
	if s.JSON {
		return s.WriteJSON(res)
	}
	for _, p := range res.Deleted {
		if err := s.PrintLine("D  " + p); err != nil {
			return err
		}
	}
	for _, p := range res.Brought {
		if err := s.PrintLine("M  " + p); err != nil {
			return err
		}
	}
	if len(res.Conflicts) == 0 {
		return nil
	}
	var t console.Table
	for _, c := range res.Conflicts {
		t.Row("left:", c.Path, c.Reason)
	}
	return t.Write(s.Stderr)
}
