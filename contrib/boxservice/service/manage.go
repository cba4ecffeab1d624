package service

import (
	"cmp"
	"context"
	"maps"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// SkillMounts returns the mounts of a query's skills, below tools.SkillsPath. A
// skill without a directory is none. Where the file system is shared, one whose
// directory is missing is left out with a warning; elsewhere the runtime's word
// is taken for it.
func (s *Service) SkillMounts(ctx context.Context, q Query) []sessions.Mount {
	if s.o.Skills == nil {
		return []sessions.Mount{}
	}
	return profile.SkillMounts(s.o.Skills(ctx, q), s.SharesFilesystem(), s.o.Log)
}

// Get returns a session.
func (s *Service) Get(ctx context.Context, id string) (sessions.SessionInfo, error) {
	if err := s.ready(); err != nil {
		return sessions.SessionInfo{}, err
	}
	return s.o.Runtime.Get(ctx, id)
}

// Delete ends a session.
func (s *Service) Delete(ctx context.Context, id string) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.o.Runtime.Delete(ctx, id)
}

// StartProcess starts a managed process in a session that is there.
func (s *Service) StartProcess(ctx context.Context, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	err := s.ready()
	if err == nil {
		err = request.CheckProcess(p)
	}
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	return s.o.Runtime.StartProcess(ctx, id, p)
}

// Process returns a managed process.
func (s *Service) Process(ctx context.Context, id, process string) (sessions.ProcessInfo, error) {
	if err := s.ready(); err != nil {
		return sessions.ProcessInfo{}, err
	}
	return s.o.Runtime.Process(ctx, id, process)
}

// StopProcess ends a managed process.
func (s *Service) StopProcess(ctx context.Context, id, process string) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.o.Runtime.StopProcess(ctx, id, process)
}

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
