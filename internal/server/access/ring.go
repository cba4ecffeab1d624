package access

import (
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
)

const (
	maxErrors = 50   // of one owner
	maxOwners = 1024 // that have any
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
