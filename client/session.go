package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
)

// SessionExec runs a command in the session of that key, which is made where
// there is none. A session that can't be as req wants it is a Conflict that
// names every field. How the command ended is in the result, its time being up
// too.
func (c *Client) SessionExec(ctx context.Context, key string, req sessions.ExecRequest) (*sessions.ToolResult, error) {
	return ask[sessions.ToolResult](ctx, c, http.MethodPost, sessionPath(key, "/exec"), req)
}

// CreateSession makes a session, or finds the one that there is.
func (c *Client) CreateSession(ctx context.Context, req sessions.CreateRequest) (*sessions.CreateResponse, error) {
	return ask[sessions.CreateResponse](ctx, c, http.MethodPost, "/v1/sessions", req)
}

// Sessions lists the caller's sessions, those asleep too, and everyone's for an
// admin.
func (c *Client) Sessions(ctx context.Context) ([]sessions.SessionInfo, error) {
	list, err := ask[sessions.SessionList](ctx, c, http.MethodGet, "/v1/sessions", nil)
	if err != nil {
		return nil, err
	}
	return list.Sessions, nil
}

// Session returns the session of that key.
func (c *Client) Session(ctx context.Context, key string) (*sessions.SessionInfo, error) {
	return ask[sessions.SessionInfo](ctx, c, http.MethodGet, sessionPath(key, ""), nil)
}

// RemoveSession ends a session and deletes what it holds.
func (c *Client) RemoveSession(ctx context.Context, key string) error {
	return c.call(ctx, http.MethodDelete, sessionPath(key, ""), nil, nil)
}

// StartProcess starts a managed process in a session that is there. One of the
// same ID that runs is ended first.
func (c *Client) StartProcess(ctx context.Context, key string, spec sessions.ProcessSpec) (*sessions.ProcessInfo, error) {
	return ask[sessions.ProcessInfo](ctx, c, http.MethodPost, sessionPath(key, "/processes"), spec)
}

// Process returns a managed process.
func (c *Client) Process(ctx context.Context, key, id string) (*sessions.ProcessInfo, error) {
	return ask[sessions.ProcessInfo](ctx, c, http.MethodGet, sessionPath(key, "/processes/"+segment(id)), nil)
}

// StopProcess ends a managed process and all that it started.
func (c *Client) StopProcess(ctx context.Context, key, id string) error {
	return c.call(ctx, http.MethodDelete, sessionPath(key, "/processes/"+segment(id)), nil, nil)
}

// SessionStatus says whether sessions can be had, and how many there are.
func (c *Client) SessionStatus(ctx context.Context) (*sessions.Status, error) {
	return ask[sessions.Status](ctx, c, http.MethodGet, "/v1/session-status", nil)
}

// SessionErrors returns the newest errors of the caller's sessions, oldest
// first.
func (c *Client) SessionErrors(ctx context.Context) ([]sessions.ErrorRecord, error) {
	list, err := ask[sessions.ErrorList](ctx, c, http.MethodGet, "/v1/session-errors", nil)
	if err != nil {
		return nil, err
	}
	return list.Errors, nil
}

// Skills lists the caller's skills, newest first.
func (c *Client) Skills(ctx context.Context) ([]sessions.Skill, error) {
	list, err := ask[sessions.SkillList](ctx, c, http.MethodGet, "/v1/skills", nil)
	if err != nil {
		return nil, err
	}
	return list.Skills, nil
}

// Skill returns one skill, with its instructions.
func (c *Client) Skill(ctx context.Context, name string) (*sessions.Skill, error) {
	return ask[sessions.Skill](ctx, c, http.MethodGet, "/v1/skills/"+segment(name), nil)
}

// RemoveSkill deletes a skill.
func (c *Client) RemoveSkill(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/skills/"+segment(name), nil, nil)
}

// SkillUpload says what of a zip archive is to be installed.
type SkillUpload struct {
	Filename     string   // skills without a name of their own are called after it
	SourceSubdir string   // where in the archive to look; "": everywhere
	SourcePaths  []string // which skills, where there are several
	TargetSuffix string   // appended to the names of the directories
	Preview      bool     // look, and install nothing
}

// InstallSkills installs the skills of a zip archive, all or none.
func (c *Client) InstallSkills(ctx context.Context, up SkillUpload, zip io.Reader) ([]sessions.Skill, error) {
	q := url.Values{"filename": {up.Filename}}
	if up.SourceSubdir != "" {
		q.Set("source_subdir", up.SourceSubdir)
	}
	if up.TargetSuffix != "" {
		q.Set("target_suffix", up.TargetSuffix)
	}
	if up.Preview {
		q.Set("preview", "1")
	}
	q["source_path"] = up.SourcePaths
	resp, err := c.send(ctx, c.http, http.MethodPost, "/v1/skills?"+q.Encode(), zip, "application/zip")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list sessions.SkillList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&list); err != nil {
		return nil, fmt.Errorf("decode answer to skills: %w", err)
	}
	return list.Skills, nil
}

// sessionPath is the path of a session, and of what is below it.
func sessionPath(key, rest string) string { return "/v1/sessions/" + segment(key) + rest }

// segment is a key as one segment of a path: what a path would take for its own
// is written so that nothing on the way can.
func segment(key string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@", r)
	}
	other := func(r rune) bool { return !plain(r) }
	if key != "" && key != "." && key != ".." && !strings.ContainsFunc(key, other) {
		return key
	}
	return "~" + base64.RawURLEncoding.EncodeToString([]byte(key))
}
