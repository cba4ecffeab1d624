package service

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Request is one command, or one session, that is asked for.
type Request struct {
	Query Query
	// Payload has fields of a Spec by their JSON names.
	Payload map[string]any
	Profile string // by name; "": the service's
	// Skills has the query's skills mounted, unless Payload has extra_mounts.
	Skills bool
	// OutputLimit is how many characters of each stream the result has; 0: the
	// service's; less: all.
	OutputLimit int
	// TrustMounts leaves it to the runtime alone which directories of the host
	// may be mounted.
	TrustMounts bool
}

// toolFields are what an agent may say of its command; description is for whom
// it may concern.
var toolFields = fieldsOf(reflect.TypeFor[sessions.ExecToolRequest]())

// fieldsOf are the JSON names of a structure's fields.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// ExecuteTool runs a command for an agent: "command" of its parameters, with
// "workdir", "timeout_sec" and "env". Which session it runs in, and what that
// may do, is not the agent's to say: whatever else is there is reported in the
// result as ignored.
func (s *Service) ExecuteTool(ctx context.Context, q Query, parameters map[string]any) (sessions.ToolResult, error) {
	payload, err := s.toolPayload(q, parameters)
	if err != nil {
		return sessions.ToolResult{}, s.note(q, "", err)
	}
	result, err := s.Execute(ctx, Request{Query: q, Payload: payload, Skills: true})
	if err != nil {
		return result, err
	}
	for _, f := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(toolFields, f) {
			result.Adjusted = append(result.Adjusted, profile.Ignored(f, parameters[f], "not for a tool to say: ignored"))
		}
	}
	return result, nil
}

func (s *Service) toolPayload(q Query, parameters map[string]any) (map[string]any, error) {
	command, given := parameters["command"]
	if !given {
		return nil, fault.Invalid("command is missing")
	}
	id, err := s.SessionID(q)
	if err != nil {
		return nil, err
	}
	payload := map[string]any{"cmd": command, "session_id": id}
	if q.Skill != "" {
		payload["skill_name"] = q.Skill
	}
	for _, f := range []string{"workdir", "timeout_sec", "env"} {
		if v, given := parameters[f]; given {
			payload[f] = v
		}
	}
	return payload, nil
}

// Execute runs the command of a payload in the session that it names. What its
// profile changed is in the result. Every error is among Errors.
func (s *Service) Execute(ctx context.Context, r Request) (sessions.ToolResult, error) {
	if err := s.ready(); err != nil {
		return sessions.ToolResult{}, s.note(r.Query, "", err)
	}
	spec, adjusted, err := s.BuildSpec(ctx, r)
	if err == nil {
		err = request.CheckLine(spec.Cmd)
	}
	if err != nil {
		return sessions.ToolResult{}, s.note(r.Query, spec.SessionID, err)
	}
	s.log(ctx, "box request", r.Query, summary(spec))
	got, err := s.o.Runtime.Exec(ctx, spec)
	if err != nil {
		return sessions.ToolResult{}, s.note(r.Query, spec.SessionID, err)
	}
	got.Adjusted = append(adjusted, got.Adjusted...)
	s.log(ctx, "box result", r.Query, outcome(got))
	return profile.ToolResult(got, cmp.Or(r.OutputLimit, s.o.OutputLimit), maxOutput), nil
}

// Create makes the session of a payload, or takes the one that is there.
func (s *Service) Create(ctx context.Context, r Request) (sessions.CreateResponse, error) {
	if err := s.ready(); err != nil {
		return sessions.CreateResponse{}, s.note(r.Query, "", err)
	}
	spec, adjusted, err := s.BuildSpec(ctx, r)
	if err != nil {
		return sessions.CreateResponse{}, s.note(r.Query, "", err)
	}
	info, err := s.o.Runtime.Create(ctx, spec)
	if err != nil {
		return sessions.CreateResponse{}, s.note(r.Query, spec.SessionID, err)
	}
	return sessions.CreateResponse{SessionInfo: info, Adjusted: adjusted}, nil
}

// BuildSpec makes the Spec of a request: the defaults of the configuration,
// then the profile's, then the checks. The payload stays as it is.
func (s *Service) BuildSpec(ctx context.Context, r Request) (sessions.Spec, []sessions.Adjustment, error) {
	p := s.profile
	if r.Profile != "" {
		var err error
		if p, err = profile.Find(r.Profile, s.o.Profiles); err != nil {
			return sessions.Spec{}, nil, err
		}
	}
	payload := r.Payload
	var skills []sessions.Mount
	if _, named := payload["extra_mounts"]; r.Skills && !named {
		skills = s.SkillMounts(ctx, r.Query)
		payload = map[string]any{"extra_mounts": skills}
		maps.Copy(payload, r.Payload)
	}
	spec, adjusted, err := profile.Build(payload, p, profile.Defaults{
		HostPath:         s.o.Roots.DefaultWorkspace(),
		WorkspaceQuotaMB: s.o.WorkspaceQuotaMB,
		Image:            strings.TrimSpace(s.o.Image),
	})
	if err == nil && !r.TrustMounts {
		err = s.checkMounts(ctx, r.Query, spec, skills)
	}
	if err != nil {
		return sessions.Spec{}, nil, err
	}
	return spec, adjusted, nil
}

// checkMounts wants all that is mounted to be allowed, or a skill; nil: they
// were not listed yet. Where the directories are another machine's, only the
// workspace's name can be looked at: the rest is its runtime's to check.
func (s *Service) checkMounts(ctx context.Context, q Query, spec sessions.Spec, skills []sessions.Mount) error {
	here := s.SharesFilesystem()
	if spec.HostPath != "" && spec.HostPathMode != sessions.MountNone {
		check := s.o.Roots.Named
		if here {
			check = func(path string) error { return profile.CheckHostPath(s.o.Roots, path) }
		}
		if err := check(spec.HostPath); err != nil {
			return err
		}
	}
	if !here {
		return nil
	}
	return profile.CheckMounts(s.o.Roots, spec.ExtraMounts, skills, func() []sessions.Mount { return s.SkillMounts(ctx, q) })
}
