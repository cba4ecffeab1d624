package service

import (
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

const (
	maxErrors = 50   // of one owner
	maxOwners = 1024 // that have any
	maxText   = 4096 // bytes of a message
)

// ring keeps the newest errors of each owner, and of the owners those whose
// errors are the newest.
type ring struct {
	mu     sync.Mutex
	owners map[string][]sessions.ErrorRecord
	recent []string // of owners, the one with the newest error last
}

func (r *ring) add(owner string, e sessions.ErrorRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners == nil {
		r.owners = map[string][]sessions.ErrorRecord{}
	}
	list := append(r.owners[owner], e)
	r.owners[owner] = slices.Clone(list[max(0, len(list)-maxErrors):])
	r.recent = append(slices.DeleteFunc(r.recent, func(o string) bool { return o == owner }), owner)
	if len(r.recent) > maxOwners {
		delete(r.owners, r.recent[0])
		r.recent = slices.Delete(r.recent, 0, 1)
	}
}

func (r *ring) list(owner string) []sessions.ErrorRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sessions.ErrorRecord{}, r.owners[owner]...)
}

// Note keeps an error that came of something else than the service's own calls
// in a session, and returns it.
func (s *Service) Note(session string, err error) error { return s.note(Query{}, session, err) }

// note keeps an error, and returns it.
func (s *Service) note(q Query, session string, err error) error {
	message := err.Error()
	if len(message) > maxText {
		message = message[:maxText]
	}
	s.shared.errors.add(s.owner, sessions.ErrorRecord{
		Timestamp: s.o.Now().UTC(), Type: profile.Class(err), Message: profile.Repair([]byte(message)),
		QueryID: q.ID, SessionID: session,
	})
	s.o.Log.Warn("box error", "query_id", q.ID, "owner", s.owner, "session_id", session,
		"type", profile.Class(err), "error", err)
	return err
}
