package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// session is one in memory.
type session struct {
	id id
	// turn is of the commands: one runs at a time. A call that makes the session
	// anew holds it too, so that no command is cut off by that.
	turn turn
	// life is held while the session goes to another state. It is taken
	// after turn, if that is.
	life turn
	// procTurn is held while a managed process is started or ended.
	procTurn turn
	// growing is held while the workspace grows by something else than commands,
	// where only looking holds it to its quota.
	growing turn
	// writing is held while the record is written.
	writing sync.Mutex

	// Guarded by Runtime.mu. What is of the state, become alone changes; the
	// record is changed by what save wrote.
	state     state
	counted   bool           // it has one of MaxSessions' places
	rec       record.Session // its ID is "" where nothing is on the disk
	leases    int            // calls under way or waiting
	used      time.Time
	wall      string // of its sandbox
	sandboxID string // its sandbox's ID
	// over ends when the sandbox of now does, as far as is known, by end.
	over  context.Context
	end   context.CancelCauseFunc
	procs map[string]*managed
	retry time.Time // when Run tries again what failed
	// unwatch ends the look at the workspace that managed processes write to; nil:
	// there is none.
	unwatch context.CancelFunc

	skills  skills
	guest   *agent.Guest // of the sandbox, which all commands go through
	guestOf string       // that sandbox's name
}

func newSession(i id) *session {
	return &session{id: i, state: absent, procs: map[string]*managed{}, skills: newSkills(nil)}
}

// find returns the session that key means to c, with a lease on it; nil where
// there is none.
func (r *Runtime) find(c sandbox.Caller, key string) (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.findLocked(c, key)
	if s != nil {
		s.leases++
	}
	return s, err
}

func (r *Runtime) findLocked(c sandbox.Caller, key string) (*session, error) {
	if s := r.sessions[id{c.Owner, key}]; s != nil {
		return s, nil
	}
	if !c.Admin {
		return nil, fault.NotFound(shown(key))
	}
	var found *session
	for i, s := range r.sessions {
		if i.key != key {
			continue
		}
		if found != nil {
			return nil, sandbox.Errorf(sandbox.Conflict, "session %s: several owners have one of that key", shown(key)).
				WithHint("ask as its owner")
		}
		found = s
	}
	if found == nil {
		return nil, fault.NotFound(shown(key))
	}
	return found, nil
}

// enter is find, or a new entry.
func (r *Runtime) enter(i id) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[i]
	if s == nil {
		s = newSession(i)
		s.used = r.now()
		r.sessions[i] = s
	}
	s.leases++
	return s
}

// release ends a lease.
func (r *Runtime) release(s *session) {
	r.mu.Lock()
	s.used = r.now()
	r.leaveLocked(s)
	r.mu.Unlock()
	r.nudge()
}

// leave ends a lease that was no use of the session.
func (r *Runtime) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(s)
}

func (r *Runtime) leaveLocked(s *session) {
	s.leases--
	if s.leases == 0 && s.state == absent { // nothing came of it, or it was ended
		r.enterLocked(s, step{to: gone})
	}
}

// record returns a copy of s's record.
func (r *Runtime) record(s *session) record.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.rec.Clone()
}

// amend changes what of a record is not its state, and writes it. After an
// error it is what it was; one that is not there is left so.
func (r *Runtime) amend(ctx context.Context, s *session, change func(*record.Session)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return r.save(ctx, s, r.stateOf(s), change)
}

// save writes a record as that of a state, changed by change if that is not
// nil. writing must be held.
func (r *Runtime) save(ctx context.Context, s *session, is state, change func(*record.Session)) error {
	r.mu.Lock()
	rec := s.rec.Clone()
	rec.LastUsedAt = s.used
	r.mu.Unlock()
	if change != nil {
		change(&rec)
	}
	if rec.ID == "" {
		return nil
	}
	rec.State = recorded[is]
	if err := r.o.Store.SaveSession(ctx, rec); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.rec = rec
	return nil
}

// forget deletes a record, whether it is known to be there or not.
func (r *Runtime) forget(ctx context.Context, s *session, recID string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := r.o.Store.DeleteSession(ctx, recID); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.rec = record.Session{}
	return nil
}

// sandboxID returns the ID of s's sandbox.
func (r *Runtime) sandboxID(s *session) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.sandboxID
}

// infoLocked describes s to its owner, but for its processes.
func (r *Runtime) infoLocked(s *session) sessions.SessionInfo {
	spec := s.rec.Spec
	return sessions.SessionInfo{
		SessionID: s.id.key, BackendName: s.wall, BackendSessionID: s.sandboxID, Image: spec.Image, Network: spec.Network,
		HostPath: spec.Workspace.HostPath, HostPathMode: spec.Workspace.Mode, MountPath: spec.Workspace.Target, Persistent: spec.Persistent,
		CPUs: spec.CPUs, MemoryMB: int(spec.Memory >> 20), PIDsLimit: int(spec.PIDs), ReadOnlyRootFS: spec.ReadOnlyRoot,
		WorkspaceQuotaMB: int(spec.Workspace.Size >> 20), CreatedAt: s.rec.CreatedAt, LastUsedAt: s.used,
		Owner: s.id.owner, Quota: s.rec.Workspace.Quota, Isolation: spec.Isolation, Active: s.leases,
		Asleep: s.state.sleeps(), Notices: slices.Clone(s.rec.Notices),
	}
}

// described is a session and its processes, at one moment.
type described struct {
	info  sessions.SessionInfo
	procs map[string]*process.Process
}

func (r *Runtime) describeLocked(s *session) described {
	d := described{r.infoLocked(s), make(map[string]*process.Process, len(s.procs))}
	for pid, m := range s.procs {
		if m.p != nil {
			d.procs[pid] = m.p
		}
	}
	return d
}

// whole is the description. The lock must not be held: a process has its own.
func (d described) whole() sessions.SessionInfo {
	info := d.info
	if len(d.procs) == 0 {
		return info
	}
	info.Processes = make(map[string]sessions.ProcessInfo, len(d.procs))
	for pid, p := range d.procs {
		info.Processes[pid] = p.Info()
	}
	if p, ok := info.Processes[sessions.DefaultProcess]; ok {
		info.Process = &p
	}
	return info
}

// describe is both in one.
func (r *Runtime) describe(s *session) sessions.SessionInfo {
	r.mu.Lock()
	d := r.describeLocked(s)
	r.mu.Unlock()
	return d.whole()
}

// Get returns a session, with its managed processes.
func (r *Runtime) Get(ctx context.Context, c sandbox.Caller, key string) (sessions.SessionInfo, error) {
	_, done, err := r.begin(ctx, c)
	if err != nil {
		return sessions.SessionInfo{}, err
	}
	defer done()
	r.mu.Lock()
	s, err := r.findLocked(c, key)
	if err == nil && !s.state.listed() {
		err = fault.NotFound(shown(key))
	}
	if err != nil {
		r.mu.Unlock()
		return sessions.SessionInfo{}, err
	}
	d := r.describeLocked(s)
	r.mu.Unlock()
	return d.whole(), nil
}

// List returns the caller's sessions, and everyone's to an admin, oldest first,
// those that sleep among them.
func (r *Runtime) List(ctx context.Context, c sandbox.Caller) ([]sessions.SessionInfo, error) {
	_, done, err := r.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	r.mu.Lock()
	var all []described
	for _, s := range r.sessions {
		if s.state.listed() && (c.Admin || s.id.owner == c.Owner) {
			all = append(all, r.describeLocked(s))
		}
	}
	r.mu.Unlock()
	list := make([]sessions.SessionInfo, 0, len(all))
	for _, d := range all {
		list = append(list, d.whole())
	}
	slices.SortFunc(list, func(a, b sessions.SessionInfo) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.SessionID, b.SessionID))
	})
	return list, nil
}
