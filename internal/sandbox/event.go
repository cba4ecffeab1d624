package sandbox

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of the event log.
const (
	MaxEvents       = 1000 // the newest that are kept of one sandbox
	MaxEventMessage = 1024 // bytes; a longer message is cut
	maxEventType    = 64
)

// Event is one line of a sandbox's log.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"` // "created", "started", "stopped", ...
	Message string    `json:"message"`
}

// The types of the events that the Manager itself writes.
const (
	eventCreated  = "created"
	eventStarted  = "started"
	eventStopped  = "stopped"
	eventSnapshot = "snapshot"
	eventKept     = "kept"
	eventAdopted  = "adopted"
	eventHeld     = "held"
	eventReleased = "released"
	EventPolicy   = "policy"
	eventTTL      = "ttl"
	eventSet      = "set"
	EventError    = "error"
)

// EventLog keeps the events of each sandbox, the newest MaxEvents of them. It
// tells what happened; nothing is decided by it, so it need not be durable.
type EventLog interface {
	Append(ctx context.Context, id string, ev Event) error
	// Events returns the events of a sandbox, oldest first, and none for an
	// unknown ID.
	Events(ctx context.Context, id string) ([]Event, error)
	// Forget drops the events of a sandbox.
	Forget(ctx context.Context, id string) error
}

// bounded returns ev within the log's bounds.
func (ev Event) bounded() Event {
	ev.Type = cut(ev.Type, maxEventType)
	ev.Message = cut(ev.Message, MaxEventMessage)
	return ev
}

// cut shortens s to at most n bytes, at the end of a character.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// memoryLog is the EventLog of a Manager that was given none.
type memoryLog struct {
	mu     sync.Mutex
	events map[string][]Event
}

var _ EventLog = (*memoryLog)(nil)

func (l *memoryLog) Append(_ context.Context, id string, ev Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = make(map[string][]Event)
	}
	evs := append(l.events[id], ev)
	if len(evs) > MaxEvents {
		evs = slices.Delete(evs, 0, len(evs)-MaxEvents)
	}
	l.events[id] = evs
	return nil
}

func (l *memoryLog) Events(_ context.Context, id string) ([]Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events[id]), nil
}

func (l *memoryLog) Forget(_ context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.events, id)
	return nil
}
