package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

// Sessions keeps sandboxes for callers who name them by keys of their own.
// *access.Access is one, and documents each method.
type Sessions interface {
	Exec(ctx context.Context, c access.Caller, id string, req sessions.ExecRequest) (sessions.ToolResult, error)
	Create(ctx context.Context, c access.Caller, req sessions.CreateRequest) (sessions.CreateResponse, error)
	Get(ctx context.Context, c access.Caller, id string) (sessions.SessionInfo, error)
	List(ctx context.Context, c access.Caller) ([]sessions.SessionInfo, error)
	Delete(ctx context.Context, c access.Caller, id string) error
	StartProcess(ctx context.Context, c access.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error)
	Process(ctx context.Context, c access.Caller, id, process string) (sessions.ProcessInfo, error)
	StopProcess(ctx context.Context, c access.Caller, id, process string) error
	Status(ctx context.Context, c access.Caller) sessions.Status
	Errors(c access.Caller) []sessions.ErrorRecord
	Tool(ctx context.Context, c access.Caller, id, name string, request []byte) (any, error)
	Deliver(ctx context.Context, c access.Caller, id string, in tools.AttachmentsIn) (tools.AttachmentsDelivered, error)
	Collect(ctx context.Context, c access.Caller, id string, q tools.CollectRequest) (tools.Collected, error)
	Purge(ctx context.Context, c access.Caller, id string) (tools.Purged, error)
	Skills
}

var _ Sessions = (*access.Access)(nil)

func (s *Server) sessionRoutes() []endpoint {
	return []endpoint{
		{"POST /v1/sessions", key.Manage, s.postSession},
		{"GET /v1/sessions", key.Read, s.listSessions},
		{"GET /v1/sessions/{id}", key.Read, s.getSession},
		{"DELETE /v1/sessions/{id}", key.Manage, s.deleteSession},
		{"POST /v1/sessions/{id}/exec", key.Exec, s.postSessionExec},
		{"POST /v1/sessions/{id}/tools/{tool}", key.Exec, s.heavily(false, s.postTool)},
		{"POST /v1/sessions/{id}/attachments", key.Exec, s.heavily(false, s.postAttachments)},
		{"POST /v1/sessions/{id}/attachments/collect", key.Exec, s.heavily(true, s.postCollect)},
		{"DELETE /v1/sessions/{id}/attachments", key.Exec, s.deleteAttachments},
		{"POST /v1/sessions/{id}/processes", key.Exec, s.postProcess},
		{"GET /v1/sessions/{id}/processes/{process}", key.Read, s.getProcess},
		{"DELETE /v1/sessions/{id}/processes/{process}", key.Exec, s.deleteProcess},
		{"GET /v1/session-status", key.Read, s.getSessionStatus},
		{"GET /v1/session-errors", key.Read, s.getSessionErrors},
		{"GET /v1/session-tools?", key.Read, s.getSessionTools},
		{"GET /v1/skills", key.Read, s.listSkills},
		{"POST /v1/skills?", key.Manage, s.heavily(false, s.postSkills)},
		{"GET /v1/skills/{name}", key.Read, s.getSkill},
		{"DELETE /v1/skills/{name}", key.Manage, s.deleteSkill},
	}
}

// sessions returns what keeps sessions, and as whom r asks for them.
func (s *Server) sessions(r *http.Request) (Sessions, access.Caller, error) {
	p := auth.Of(r)
	// Only the daemon's own user and root may name directories: the daemon opens
	// them with rights of its own.
	c := access.Caller{Caller: p.Caller, HostPaths: p.Peer != nil && p.Caller.Admin, HostImage: p.HostImage()}
	switch {
	case s.o.SessionsOff != "":
		return nil, c, sandbox.Errorf(sandbox.Unsupported, "sessions: %s", s.o.SessionsOff).
			WithHint("leave box.enabled out of the daemon's config.json, then carboy daemon stop")
	case s.o.Sessions == nil:
		return nil, c, sandbox.Errorf(sandbox.Unsupported, "sessions: this daemon keeps none")
	}
	return s.o.Sessions, c, nil
}

// maxKey is the longest key of a session, in bytes; those of processes and
// skills are shorter.
const maxKey = 1024

// sessionKey returns the key that a segment of r's path stands for.
func sessionKey(r *http.Request, name string) (string, error) {
	v := r.PathValue(name)
	key := v
	if code, coded := strings.CutPrefix(v, "~"); coded {
		b, err := base64.RawURLEncoding.Strict().DecodeString(code)
		if err != nil || !utf8.Valid(b) {
			return "", sandbox.Errorf(sandbox.Invalid, "path: %.80q is not ~ and the base64url of a text", v)
		}
		key = string(b)
	}
	if len(key) > maxKey { // before it is written down anywhere
		return "", sandbox.Errorf(sandbox.Invalid, "path: %.80q has more than %d bytes", key, maxKey)
	}
	return key, nil
}

// onSession answers with what do returns for the session of r's path.
func onSession[T any](s *Server, w http.ResponseWriter, r *http.Request, do func(all Sessions, c access.Caller, id string) (T, error)) {
	onKey(s, w, r, "id", do)
}

// onKey answers with what do returns for the key of that name in r's path.
func onKey[T any](s *Server, w http.ResponseWriter, r *http.Request, name string, do func(all Sessions, c access.Caller, key string) (T, error)) {
	all, c, err := s.sessions(r)
	var key string
	if err == nil {
		key, err = sessionKey(r, name)
	}
	var out T
	if err == nil {
		out, err = do(all, c, key)
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) postSession(w http.ResponseWriter, r *http.Request) {
	var req sessions.CreateRequest
	all, c, err := s.sessions(r)
	if err == nil {
		err = wire.Decode(r, &req, false)
	}
	var out sessions.CreateResponse
	if err == nil {
		out, err = all.Create(r.Context(), c, req)
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	out := sessions.SessionList{Sessions: []sessions.SessionInfo{}}
	if err == nil {
		var list []sessions.SessionInfo
		list, err = all.List(r.Context(), c)
		out.Sessions = append(out.Sessions, list...)
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (sessions.SessionInfo, error) {
		return all.Get(r.Context(), c, id)
	})
}

func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (deleted, error) {
		return deleted{id}, all.Delete(r.Context(), c, id)
	})
}

// deleted says what is no more.
type deleted struct {
	Deleted string `json:"deleted"`
}

// largeResult is the size of a command's output from which its answer takes a
// turn: JSON may take six bytes for one.
const largeResult = 64 << 10

func (s *Server) postSessionExec(w http.ResponseWriter, r *http.Request) {
	leave := func() {}
	defer func() { leave() }()
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (sessions.ToolResult, error) {
		if !auth.Of(r).Allows(key.Manage) { // it makes the session where there is none
			return sessions.ToolResult{}, sandbox.Errorf(sandbox.Denied, "the key lacks the scope %s", key.Manage)
		}
		var req sessions.ExecRequest
		if err := wire.Decode(r, &req, false); err != nil {
			return sessions.ToolResult{}, err
		}
		res, err := all.Exec(r.Context(), c, id, req)
		if err == nil && len(res.Stdout)+len(res.Stderr) > largeResult {
			var turn func()
			if turn, err = s.enterHeavy(w, r); err == nil {
				leave = turn
			}
		}
		return res, err
	})
}

func (s *Server) postProcess(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (sessions.ProcessInfo, error) {
		var spec sessions.ProcessSpec
		if err := wire.Decode(r, &spec, false); err != nil {
			return sessions.ProcessInfo{}, err
		}
		return all.StartProcess(r.Context(), c, id, spec)
	})
}

func (s *Server) getProcess(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (sessions.ProcessInfo, error) {
		process, err := sessionKey(r, "process")
		if err != nil {
			return sessions.ProcessInfo{}, err
		}
		return all.Process(r.Context(), c, id, process)
	})
}

func (s *Server) deleteProcess(w http.ResponseWriter, r *http.Request) {
	onSession(s, w, r, func(all Sessions, c access.Caller, id string) (deleted, error) {
		process, err := sessionKey(r, "process")
		if err != nil {
			return deleted{}, err
		}
		return deleted{process}, all.StopProcess(r.Context(), c, id, process)
	})
}

func (s *Server) getSessionStatus(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	var out sessions.Status
	if s.o.SessionsOff != "" { // which is an answer
		err, out.ConnectorError = nil, s.o.SessionsOff
	} else if err == nil {
		out = all.Status(r.Context(), c)
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) getSessionErrors(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	out := sessions.ErrorList{Errors: []sessions.ErrorRecord{}}
	if err == nil {
		out.Errors = append(out.Errors, all.Errors(c)...)
	}
	answer(w, http.StatusOK, out, err)
}
