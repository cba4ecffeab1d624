package service

import (
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

const maxErrors = 50

// ring keeps the newest errors.
type ring struct {
	mu     sync.Mutex
	newest []sessions.ErrorRecord
}

func (r *ring) list() []sessions.ErrorRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sessions.ErrorRecord{}, r.newest...)
}

// note keeps an error, and returns it.
func (s *Service) note(q Query, session string, err error) error {
	e := profile.ErrorRecord(s.o.Now(), err, session)
	e.QueryID = q.ID
	s.errors.mu.Lock()
	s.errors.newest = slices.Clone(append(s.errors.newest, e)[max(0, len(s.errors.newest)+1-maxErrors):])
	s.errors.mu.Unlock()
	s.o.Log.Warn("box error", "query_id", q.ID, "session_id", session, "type", e.Type, "error", err)
	return err
}
