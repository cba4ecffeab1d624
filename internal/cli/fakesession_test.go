package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

type fakeSessions struct {
	sessions []sessions.SessionInfo
	skills   []sessions.Skill
}

// sessionRoutes are the fake's sessions, whose commands are the host's own
// shell's, and its skills.
func (d *fakeDaemon) sessionRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/sessions": func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(sessions.SessionList{Sessions: d.sessions})
		},
		"POST /v1/sessions/{id}/exec": d.sessionExec,
		"DELETE /v1/sessions/{id}":    d.removeSession,
		"GET /v1/session-status": func(w http.ResponseWriter, _ *http.Request) error {
			wall := "gvisor"
			return json.NewEncoder(w).Encode(sessions.Status{
				Available: true, Enabled: true, Profile: "default", RecentErrorCount: 1,
				RuntimeStatus: sessions.RuntimeStatus{
					Backend: sessions.Backend{Name: &wall, Available: true}, ActiveSessions: len(d.sessions), SessionTTLSec: 300,
					Limits: sessions.Limits{MaxSessions: 64, MaxProcesses: 64},
				},
			})
		},
		"GET /v1/session-errors": func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(sessions.ErrorList{Errors: []sessions.ErrorRecord{
				{Timestamp: created, Type: langbot.ClassValidation, Message: "cmd must not be empty", SessionID: "person_bob"},
			}})
		},
		"GET /v1/session-tools": func(w http.ResponseWriter, r *http.Request) error {
			list, err := toolspec.List("", r.URL.Query().Get("query_id"))
			if err != nil {
				return err
			}
			return json.NewEncoder(w).Encode(list)
		},
		"GET /v1/skills": func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(sessions.SkillList{Skills: d.skills})
		},
		"POST /v1/skills":          d.installSkill,
		"DELETE /v1/skills/{name}": d.removeSkill,
	}
}

func (d *fakeDaemon) sessionExec(w http.ResponseWriter, r *http.Request) error {
	var req sessions.ExecRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	id := r.PathValue("id")
	if req.Payload["network"] == "on" {
		return sandbox.Errorf(sandbox.Conflict, "Box session %s already exists with network=off", id)
	}
	if !slices.ContainsFunc(d.sessions, func(s sessions.SessionInfo) bool { return s.SessionID == id }) {
		d.sessions = append(d.sessions, sessions.SessionInfo{
			SessionID: id, BackendName: "gvisor", BackendSessionID: "box1", Network: "off", WorkspaceQuotaMB: 100, Quota: sessions.QuotaHard,
			LastUsedAt: created, Asleep: id == "sleepy",
		})
	}
	res := sessions.ToolResult{SessionID: id, Backend: "gvisor", Status: sessions.StatusCompleted, DurationMS: 1500, QueuedMS: 500}
	if _, slow := req.Payload["timeout_sec"]; slow {
		res.Status, res.Stdout = sessions.StatusTimedOut, "part\n"
		res.Adjusted = []sessions.Adjustment{{Field: "timeout_sec", Asked: 999, Got: 120, Reason: "at most 120 by profile default"}}
		return json.NewEncoder(w).Encode(res)
	}
	cmd := exec.Command("/bin/sh", "-c", req.Command)
	if env, ok := req.Payload["env"].(map[string]any); ok {
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v.(string))
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // the code says how it ended
	code := cmd.ProcessState.ExitCode()
	res.ExitCode, res.OK, res.Stdout, res.Stderr = &code, code == 0, strings.ToValidUTF8(string(out), "\uFFFD"), stderr.String()
	if res.Stdout != string(out) {
		res.StdoutRaw = out
	}
	return json.NewEncoder(w).Encode(res)
}

func (d *fakeDaemon) removeSession(_ http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	i := slices.IndexFunc(d.sessions, func(s sessions.SessionInfo) bool { return s.SessionID == id })
	if i < 0 {
		return sandbox.Errorf(sandbox.NotFound, "session %s not found", id)
	}
	d.sessions = slices.Delete(d.sessions, i, i+1)
	return nil
}

func (d *fakeDaemon) installSkill(w http.ResponseWriter, r *http.Request) error {
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "zip\n" {
		return sandbox.Errorf(sandbox.Invalid, "the archive is damaged")
	}
	list := []sessions.Skill{{Name: strings.TrimSuffix(r.URL.Query().Get("filename"), ".zip"), Description: "reads \x1b[31mPDF"}}
	if r.URL.Query().Get("preview") == "" {
		d.skills = append(d.skills, list...)
	}
	return json.NewEncoder(w).Encode(sessions.SkillList{Skills: list})
}

func (d *fakeDaemon) removeSkill(_ http.ResponseWriter, r *http.Request) error {
	i := slices.IndexFunc(d.skills, func(s sessions.Skill) bool { return s.Name == r.PathValue("name") })
	if i < 0 {
		return sandbox.Errorf(sandbox.NotFound, "skill %s: not found", r.PathValue("name"))
	}
	d.skills = slices.Delete(d.skills, i, i+1)
	return nil
}
