package service

import (
	"cmp"
	"maps"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

// Query is one message that an agent answers, as far as its session is
// concerned. All may be empty.
type Query struct {
	ID           string
	LauncherType string // of the chat: "person", "group"
	LauncherID   string // the chat
	SenderID     string // who wrote
	// Variables are what a template may name, before the above.
	Variables map[string]string
	// Template is that of the query's pipeline; "": profile.DefaultTemplate.
	Template string
	// Skill is the one that the call is of, where it is of one.
	Skill string
}

// SessionID returns the key of the session that a query's commands run in. The
// forced template counts before the query's own.
func (s *Service) SessionID(q Query) (string, error) {
	template := cmp.Or(strings.TrimSpace(s.o.ForceTemplate), q.Template)
	return profile.SessionID(template, q.variables())
}

const unknown = "unknown"

func (q Query) variables() map[string]string {
	vars := map[string]string{
		"query_id":      cmp.Or(q.ID, unknown),
		"launcher_type": cmp.Or(q.LauncherType, "query"),
		"launcher_id":   cmp.Or(q.LauncherID, q.ID, unknown),
		"sender_id":     cmp.Or(q.SenderID, q.LauncherID, q.ID, unknown),
		"global":        "global",
	}
	maps.Copy(vars, q.Variables)
	return vars
}
