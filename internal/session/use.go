package session

import (
	"context"
	"net"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
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
