package session

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// stillAllowed refuses to start a session's sandbox again that has more than one
// that is made now may have: the configuration is another than when it was made,
// or somebody put another directory in the place of one of its own. It keeps its
// files, and is for its owner to delete. One that runs keeps what it has.
func (r *Runtime) stillAllowed(ctx context.Context, s *session) error {
	sb, err := r.o.Manager.Get(ctx, sandbox.Caller{Owner: s.id.owner}, r.record(s).Sandbox)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound { // which is told of where it is missed
			return nil
		}
		return err
	}
	if r.allows(sb.Backend) != nil {
		return sandbox.Errorf(sandbox.Denied, "session %s is behind %s, which is weaker than %s, which sessions have here by now",
			shown(s.id.key), sb.Backend, r.c.Isolation).
			WithHint("delete the session, or have box.allowed_isolation name its wall")
	}
	dirs := []sandbox.HostDir{sb.Spec.Workspace.Source}
	for _, m := range sb.Spec.Mounts {
		dirs = append(dirs, m.Source)
	}
	for _, dir := range dirs {
		if dir == (sandbox.HostDir{}) {
			continue
		}
		if err := r.stillThere(s, dir); err != nil {
			return err
		}
	}
	return nil
}

// stillThere refuses a directory that is another by now, or that no session gets
// any more.
func (r *Runtime) stillThere(s *session, dir sandbox.HostDir) error {
	is, err := r.roots.Open(dir.Path, hostroot.Access{UID: uidOf(s.id.owner)})
	if err != nil {
		return err
	}
	defer is.Close()
	if is.Dev != dir.Dev || is.Ino != dir.Ino {
		return otherDir(dir)
	}
	return nil
}

func otherDir(d sandbox.HostDir) error {
	return sandbox.Errorf(sandbox.Conflict, "host_path %s: it is another directory than when the session was made", d.Path).
		WithHint("delete the session")
}
