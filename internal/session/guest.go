package session

import (
	"context"
	"net"

	"github.com/carboy-sandbox/carboy/internal/guestcall"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// guest is the agent of a session's sandbox, over connections that are kept for
// the next command: to make one costs both ends more than a short command's
// messages do.
func (r *Runtime) guest(s *session) *guestcall.Guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.guest == nil {
		s.guest = guestcall.New(r.dialLocked(s))
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
func (r *Runtime) dial(s *session) guestcall.Dial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialLocked(s)
}

func (r *Runtime) dialLocked(s *session) guestcall.Dial {
	name := s.rec.Sandbox
	return func(ctx context.Context) (net.Conn, error) {
		return r.o.Manager.Dial(ctx, sandbox.Caller{Owner: s.id.owner}, name, sandbox.GuestPort)
	}
}
