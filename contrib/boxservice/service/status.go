package service

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

// Status says how the service and its runtime are. It is available only where
// the runtime answers and its wall works: a connection alone is not enough.
func (s *Service) Status(ctx context.Context) sessions.Status {
	status := sessions.Status{
		Enabled: s.Enabled(), Profile: s.profile.Name, RecentErrorCount: len(s.Errors()), ConnectorError: s.whyNot(),
	}
	if status.ConnectorError != "" {
		return status
	}
	runtime, err := s.o.Runtime.Status(ctx)
	if err != nil {
		status.ConnectorError = err.Error()
		return status
	}
	status.RuntimeStatus, status.Available = runtime, runtime.Backend.Available
	status.ConnectorError = profile.BackendError(runtime.Backend)
	return status
}

// Usable reports whether a sandbox can be had now. Tools that need one hide
// themselves where it can't: nothing runs on the host instead.
func (s *Service) Usable(ctx context.Context) bool {
	if !s.Available() {
		return false
	}
	b, err := s.o.Runtime.Backend(ctx)
	return err == nil && b.Available
}

// Sessions lists the sessions; there are none where the runtime can't tell.
func (s *Service) Sessions(ctx context.Context) []sessions.SessionInfo {
	if !s.Available() {
		return []sessions.SessionInfo{}
	}
	list, err := s.o.Runtime.List(ctx)
	if err != nil || list == nil {
		return []sessions.SessionInfo{}
	}
	return list
}

// Errors returns the newest 50 errors, oldest first.
func (s *Service) Errors() []sessions.ErrorRecord { return s.errors.list() }
