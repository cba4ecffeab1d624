package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// enforced says how a directory of the host is held to its quota: hard, where its
// file system has quotas of projects and it can be one, and else soft. hard
// refuses the second.
func (p *shaper) enforced(ctx context.Context, w record.Workspace, spec Spec, hard bool, f *found) (record.Workspace, error) {
	w.Quota = request.QuotaSoft
	if !hard && spec.Workspace.Quota == request.QuotaSoft {
		return w, nil
	}
	id, err := p.take(ctx, w, spec)
	if err == nil {
		w.Quota, w.Project = request.QuotaHard, id
		return w, nil
	}
	if ctx.Err() != nil {
		return record.Workspace{}, context.Cause(ctx)
	}
	why := err.Error()
	unfit, ok := errors.AsType[*project.UnfitError](err)
	if !ok {
		p.log.Error("make a workspace a project of its file system", "path", w.Dir.Path, "error", err)
		why = "that failed, as the daemon's log has it"
	}
	if hard {
		return record.Workspace{}, onlySoft(spec.Workspace.HostPath, why)
	}
	if !ok || !unfit.None { // else nobody expects it
		f.say("workspace %s: its quota is soft, although its file system has project quotas: %s", spec.Workspace.HostPath, why)
	}
	return w, nil
}

// onlySoft refuses a session that would not have less than a hard quota.
func onlySoft(hostPath, why string) error {
	return sandbox.Errorf(sandbox.Unsupported, "quota hard: %s can only be held to a soft one: %s", hostPath, why).
		WithHint("leave host_path out: a workspace of the session's own has a hard one; or ask for quota soft")
}

// take makes a directory a project.
func (p *shaper) take(ctx context.Context, w record.Workspace, spec Spec) (uint32, error) {
	switch {
	case p.projects == nil:
		return 0, &project.UnfitError{Why: "there are no project quotas here", None: true}
	case spec.Workspace.Mode == request.ReadOnly:
		return 0, &project.UnfitError{Why: "it is shown for reading alone", None: true}
	}
	dir, err := open(w.Dir)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	return p.projects.Take(ctx, dir, p.c.Limits.MaxEntries)
}

// quotas hold workspaces to their quotas: directories of the host that their file
// systems hold as projects, and those that are only looked at. A volume and a
// disk of a session's own hold themselves.
type quotas struct {
	projects Projects // nil: none
	roots    *hostroot.Roots
	entries  int // that a workspace may have which names no number
	log      *slog.Logger
	// promised is what all sessions of a directory may have in it; any is false
	// where there is none.
	promised func(w record.Workspace) (l project.Limits, any bool)

	// locks has one for each file system, held while one of its directories is
	// given the limits of its sessions: a slow one keeps no other's waiting.
	// Within it the Runtime's is taken, by promised.
	locks sync.Map // device number to *sync.Mutex
}

// hold sees that a directory has the limits of its sessions. It is done before
// each command too, for an operator may have mounted the file system otherwise, or
// changed them by hand: who was promised a hard quota never runs without.
func (q *quotas) hold(w record.Workspace) error {
	if q.projects == nil {
		return unheld(w, "there are no project quotas here")
	}
	dir, err := open(w.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	defer q.lockLimits(w)()
	limits, _ := q.promised(w)
	_, err = q.projects.Hold(dir, w.Project, limits)
	if unfit, ok := errors.AsType[*project.UnfitError](err); ok {
		return unheld(w, unfit.Why)
	}
	if err != nil {
		return fmt.Errorf("hold workspace %s to its quota: %w", w.Dir.Path, err)
	}
	return nil
}

// lockLimits has the limits of a file system's directories changed by one at a
// time.
func (q *quotas) lockLimits(w record.Workspace) (unlock func()) {
	mu, _ := q.locks.LoadOrStore(w.Dir.Dev, &sync.Mutex{})
	m := mu.(*sync.Mutex) // nothing else is stored
	m.Lock()
	return m.Unlock
}

func unheld(w record.Workspace, why string) error {
	return sandbox.Errorf(sandbox.Conflict, "workspace %s: it is not held to its hard quota any more: %s", w.Dir.Path, why).
		WithHint("delete the session")
}

// promised is what all sessions of a directory may have in it: the least of what
// each was promised. None is left with any where there is none.
func (r *Runtime) promised(of record.Workspace) (l project.Limits, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return a + b
		}
		return min(a, b)
	}
	for _, s := range r.sessions {
		w := s.rec.Workspace
		if w.Project != of.Project || w.Dir.Dev != of.Dir.Dev || s.state == closing {
			continue
		}
		any = true
		l.Bytes = least(l.Bytes, w.Limit)
		// The root is one of a project's files, and none that was asked for.
		l.Inodes = least(l.Inodes, cmp.Or(w.Inodes, int64(r.c.Limits.MaxEntries))+1)
	}
	return l, any
}

// letGo takes the limits from a directory whose session has ended, or leaves it
// those of its other sessions. The directory is its user's.
func (q *quotas) letGo(w record.Workspace) {
	if w.Project == 0 || q.projects == nil {
		return
	}
	defer q.lockLimits(w)()
	dir, same := q.near(w)
	if dir == nil {
		q.log.Warn("lift a workspace's quota: its file system is not there", "path", w.Dir.Path, "project", w.Project)
		return
	}
	defer dir.Close()
	limits, others := q.promised(w)
	var err error
	switch {
	case !others:
		err = q.projects.Lift(dir, w.Project)
	case same:
		_, err = q.projects.Hold(dir, w.Project, limits)
	}
	if err != nil {
		q.log.Warn("lift a workspace's quota", "path", w.Dir.Path, "project", w.Project, "error", err)
	}
}

// near opens a directory, or where it has gone, another of its file system. same
// says that it is itself.
func (q *quotas) near(w record.Workspace) (dir *os.File, same bool) {
	if f, err := openDir(w.Dir.Path); err == nil {
		// The number of a device may be another after the machine was restarted.
		if isDir(f, w.Dir) || q.projects.Of(f) == w.Project {
			return f, true
		}
		_ = f.Close()
	}
	for _, p := range append(q.roots.Allowed(), filepath.Dir(w.Dir.Path)) {
		f, err := openDir(p)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Dev == w.Dir.Dev {
			return f, false
		}
		_ = f.Close()
	}
	return nil, false
}

// openDir opens a directory by a path that had no links when it was taken in:
// of those above it, guests may be able to write to some.
func openDir(path string) (*os.File, error) {
	root, err := beneath.OpenDir("/")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open("."+path, unix.O_RDONLY|unix.O_DIRECTORY)
}

// open opens a directory of the host that was accepted, to look at what is in
// it. It fails where it is another by now, and never waits for what is there
// instead, such as a fifo.
func open(d sandbox.HostDir) (*os.File, error) {
	f, err := openDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if !isDir(f, d) {
		_ = f.Close()
		return nil, otherDir(d)
	}
	return f, nil
}
