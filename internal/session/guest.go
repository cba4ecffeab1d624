package session

import (
	"context"
	"net"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// guest is the agent of a session's sandbox, over connections that are kept for
// the next command: to make one costs both ends more than a short command's
// messages do. Those to a sandbox that the session had before are not for the next
// one: a look at a half-made sandbox may have made them.
func (r *Runtime) guest(s *session) *agent.Guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.guestOf != s.rec.Sandbox {
		s.leaveGuestLocked()
	}
	if s.guest == nil {
		s.guest, s.guestOf = agent.New(r.dialLocked(s)), s.rec.Sandbox
	}
	return s.guest
}

// leaveGuestLocked gives up the connections to a sandbox that has ended.
// Calls that are under way end by themselves.
func (s *session) leaveGuestLocked() {
	if s.guest != nil {
		s.guest.Close()
		s.guest = nil
	}
}

// dial connects to the agent of a session's sandbox.
func (r *Runtime) dial(s *session) agent.Dial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialLocked(s)
}

// dialLocked is dial. Where the sandbox turns out to have ended, the processes
// that were in it have, too.
func (r *Runtime) dialLocked(s *session) agent.Dial {
	name, over := s.rec.Sandbox, s.over
	c := sandbox.Caller{Owner: s.id.owner}
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := r.o.Manager.Dial(ctx, c, name, sandbox.GuestPort)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		sb, gerr := r.o.Manager.Get(ctx, c, name)
		if gerr == nil && sb.State != sandbox.StateRunning || sandbox.KindOf(gerr) == sandbox.NotFound {
			go r.abandonSince(over, s) // which waits for this very dial
		}
		return nil, err
	}
}
