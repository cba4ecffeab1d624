package service

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// whyDisabled is why there are no sessions where the configuration says so.
const whyDisabled = "Box runtime is disabled in config (box.enabled = false)"

const (
	whyDisconnected = "Disconnected from Box runtime"
	whyClosed       = "Box runtime was shut down"
)

// Initialize connects, and makes the default workspace where it is missing and
// the file system is shared. A failure leaves the service unavailable, and
// Status says why: a platform without sandboxes still runs. A disabled service
// touches nothing.
func (s *Service) Initialize(ctx context.Context) {
	if s.o.Disabled {
		s.set(false, whyDisabled)
		s.o.Log.Info("box runtime disabled by config: no command can be run, no skill be changed")
		return
	}
	before := s.changesNow()
	if s.o.Connector != nil {
		if err := s.o.Connector.Open(ctx); err != nil {
			s.fail(err)
			return
		}
	}
	// The connector may have told already, of this connection and of its end.
	s.connected(before)
}

// Connected is told that the runtime answers, for the first time or again.
func (s *Service) Connected() {
	if !s.o.Disabled {
		s.connected(s.changesNow())
	}
}

// connected makes the service available, unless something was said of that
// since changes was before.
func (s *Service) connected(before int) {
	if s.SharesFilesystem() {
		if err := s.o.Roots.MakeDefault(); err != nil {
			s.fail(err)
			return
		}
	}
	if s.setAfter(before, true, "") {
		s.o.Log.Info("box runtime connected", "profile", s.profile.Name, "default_workspace", s.o.Roots.DefaultWorkspace())
	}
}

// Disconnected is told that the runtime does not answer any more, and why where
// that is known. It reports whether a connection is still wanted: not where the
// service is disabled or closed, which it leaves as it is.
func (s *Service) Disconnected(err error) (reconnect bool) {
	if s.o.Disabled {
		return false
	}
	why := whyDisconnected
	if err != nil {
		why += ": " + err.Error()
	}
	if !s.set(false, why) {
		return false
	}
	s.o.Log.Warn("box runtime disconnected: no command can be run", "error", err)
	return true
}

// Close ends what the service had started: a runtime that can be shut down is
// told to, though it need not answer, and the connector is closed. A disabled
// service has nothing to end.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed, s.available = true, false
	if !s.o.Disabled {
		s.why = whyClosed
	}
	s.mu.Unlock()
	if closed || s.o.Disabled {
		return nil
	}
	if r, ok := s.o.Runtime.(interface{ Shutdown(context.Context) error }); ok {
		if err := r.Shutdown(ctx); err != nil {
			s.o.Log.Warn("box runtime did not shut down", "error", err)
		}
	}
	if s.o.Connector == nil {
		return nil
	}
	return s.o.Connector.Close()
}

// Enabled reports whether the configuration has sandboxes at all.
func (s *Service) Enabled() bool { return !s.o.Disabled }

// Available reports whether the runtime answers. Whether a sandbox can be had
// is another question: Usable.
func (s *Service) Available() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.available
}

// changesNow counts how often it was said whether the service is available.
func (s *Service) changesNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// set says whether the service is available, and reports whether it could: one
// that is closed stays as it is.
func (s *Service) set(available bool, why string) bool { return s.setAfter(-1, available, why) }

// setAfter is set where nothing was said since changes was before; -1: always.
func (s *Service) setAfter(before int, available bool, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || before >= 0 && before != s.changes {
		return false
	}
	s.available, s.why = available, why
	s.changes++
	return true
}

func (s *Service) fail(err error) {
	if s.set(false, err.Error()) {
		s.o.Log.Warn("box runtime unavailable: no command can be run", "error", err)
	}
}

// whyNot says what keeps the service from being available; "": nothing.
func (s *Service) whyNot() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.available {
		return ""
	}
	return s.why
}

// ready is nil where the runtime answers.
func (s *Service) ready() error {
	why := s.whyNot()
	if why == "" {
		return nil
	}
	return &sandbox.Error{
		Kind: sandbox.Unavailable, Msg: "Box runtime is not available: " + why, Err: profile.ErrRuntime,
		Hint: "see its status: carboy session status",
	}
}
