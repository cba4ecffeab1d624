package session

import (
	"context"
	"net"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Create makes a session, or takes the one that is there into use: then the
// fields of spec that shape a session must be what it has, or the error has a
// *fault.ConflictError. Where only its extra mounts differ it is made anew, once
// its commands have ended. Notices say what became of it.
func (r *Runtime) Create(ctx context.Context, c sandbox.Caller, spec Spec) (sessions.SessionInfo, error) {
	u, err := r.Use(ctx, c, spec)
	if err != nil {
		return sessions.SessionInfo{}, err
	}
	u.Release()
	return u.Info(), nil
}

// Use takes a session into use that Create would return. Until its Release the
// session is not idle.
func (r *Runtime) Use(ctx context.Context, c sandbox.Caller, spec Spec) (*Use, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := request.Check(spec); err != nil {
		return nil, err
	}
	s, f, err := r.acquire(ctx, c, spec)
	if err != nil {
		return nil, tidied(err, spec.Key, "make it ready")
	}
	notices, err := r.bring(ctx, s, spec)
	if err != nil {
		r.release(s)
		return nil, tidied(err, spec.Key, "bring its skills")
	}
	info := r.describe(s)
	info.Active-- // the Use itself
	info.Notices = append(f.notices, notices...)
	return &Use{info: info, dial: r.dial(s), release: sync.OnceFunc(func() {
		back, cancel := detached(ctx)
		defer cancel()
		r.takeBack(back, s, spec.Skill, Command{})
		r.release(s)
	})}, nil
}

// Use is a session in use by something else than a command.
type Use struct {
	info    sessions.SessionInfo
	dial    agent.Dial
	release func()
	tell    func(status string, err error) // nil: nobody is told
}

// Info returns the session as it was when the Use began.
func (u *Use) Info() sessions.SessionInfo { return u.info }

// Notices are what the user should know of what became of the session.
func (u *Use) Notices() []string { return u.info.Notices }

// Dial connects to its guest agent.
func (u *Use) Dial(ctx context.Context) (net.Conn, error) { return u.dial(ctx) }

// Release ends the Use. Calling it again does nothing.
func (u *Use) Release() { u.release() }

// Finish is Release for a Use that was borrowed: it tells how the job ended, by
// its status, or by its error where it came to nothing.
func (u *Use) Finish(status string, err error) {
	if u.tell != nil {
		u.tell(status, err)
	}
	u.Release()
}

// Job is what a session is borrowed for.
type Job struct {
	Action string // as AuditRecord has it: "tool:read", "attachments:deliver"
	Path   string // of the file that it is about; of a tool's alone
	// Skill is one whose package may be changed meanwhile; "": none.
	Skill string
	// Bytes and Files are how much the workspace may grow by it; 0 and less: it
	// does not. Replaces is a path, absolute or below the workspace, of a file
	// whose present size is given back.
	Bytes    int64
	Files    int
	Replaces string
}

// Borrow takes a session into use that is there, as it is, beside its commands.
// What would take a workspace over its soft quota is refused, with a
// *quota.ExceededError in the error's chain. Jobs that make one workspace grow
// follow one another. The job is told of when the Use is finished, or here
// where it came to nothing.
func (r *Runtime) Borrow(ctx context.Context, c sandbox.Caller, key string, job Job) (*Use, error) {
	a := AuditRecord{Time: r.clock.Now().UTC(), Owner: c.Owner, Session: key, Action: job.Action, Path: request.Written(job.Path)}
	tell := sync.OnceFunc(func() { r.tellJob(a) })
	u, err := r.borrow(ctx, c, key, job, &a)
	if err != nil {
		a.Error = r.class(err)
		tell()
		return nil, err
	}
	u.tell = func(status string, err error) {
		a.Status, a.Error = status, r.class(err)
		tell()
	}
	return u, nil
}

func (r *Runtime) borrow(ctx context.Context, c sandbox.Caller, key string, job Job, a *AuditRecord) (*Use, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	s, f, err := r.existing(ctx, c, key)
	if err != nil {
		return nil, tidied(err, key, "make it ready")
	}
	a.Sandbox, a.SessionIs = r.sandboxID(s), f.how
	notices, err := r.bring(ctx, s, r.record(s).Spec)
	if err != nil {
		r.release(s)
		return nil, tidied(err, key, "bring its skills")
	}
	give, err := r.makeRoom(ctx, s, job)
	if err != nil {
		r.release(s)
		return nil, tidied(err, key, "count its workspace")
	}
	info := r.describe(s)
	info.Active-- // the Use itself
	info.Notices = append(f.notices, notices...)
	return &Use{info: info, dial: r.dial(s), release: sync.OnceFunc(func() {
		give()
		back, cancel := detached(ctx)
		defer cancel()
		if job.Skill != "" {
			r.takeBack(back, s, job.Skill, Command{})
		}
		r.release(s)
	})}, nil
}

// tellJob counts a job, and writes it down.
func (r *Runtime) tellJob(a AuditRecord) {
	a.Duration = r.clock.Now().Sub(a.Time)
	tool := strings.HasPrefix(a.Action, toolPrefix)
	switch {
	case tool:
		r.metrics.tools.Add(1)
	default:
		r.metrics.transfers.Add(1)
	}
	if a.Error != "" {
		if tool {
			r.metrics.toolErrors.Add(1)
		} else {
			r.metrics.transferErrors.Add(1)
		}
	}
	r.tell(a)
}

const toolPrefix = "tool:"

// makeRoom refuses a job that takes a workspace over its soft quota. give ends
// the job's turn.
func (r *Runtime) makeRoom(ctx context.Context, s *session, job Job) (give func(), err error) {
	w := r.record(s).Workspace
	if job.Bytes <= 0 || job.Skill != "" || !soft(w) {
		return func() {}, nil
	}
	if !s.growing.take(ctx, nil) {
		return nil, context.Cause(ctx)
	}
	g, err := r.quotas.guard(ctx, w, s.id.key)
	if err == nil {
		defer g.close()
		u := g.last
		u.Bytes += max(job.Bytes-g.size(job.Replaces, r.record(s).Spec.Workspace.Target), 0)
		u.Entries += job.Files
		u.OverBytes = g.limits.Bytes > 0 && u.Bytes > g.limits.Bytes
		u.OverEntries = u.Entries > g.limits.Most()
		err = quota.Check(quota.Before, u, g.limits, g.path, g.key)
	}
	if err != nil {
		s.growing.give()
		return nil, err
	}
	return s.growing.give, nil
}

// size returns the size of a file of the workspace; 0 where there is none, or
// one that only the agent inside could find.
func (g *guard) size(p, root string) int64 {
	if p == "" {
		return 0
	}
	if path.IsAbs(p) {
		rest, ok := strings.CutPrefix(path.Clean(p), path.Clean(root)+"/")
		if !ok {
			return 0
		}
		p = rest
	}
	fd, err := unix.Openat2(int(g.dir.Fd()), p, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Size
}
