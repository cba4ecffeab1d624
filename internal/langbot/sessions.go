package langbot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// spec reads a request for a session, under the key of its tenant. notices say
// what of it was not understood.
func (c call) spec(ctx context.Context) (spec sessions.Spec, notices []string, err error) {
	spec, ignored, err := profile.ParseSpec(c.data)
	if err != nil {
		return sessions.Spec{}, nil, err
	}
	if len(ignored) > 0 {
		notices = append(notices, "fields that are not known were ignored: "+shortList(ignored))
	}
	if c.h.admit.required() {
		spec, err = c.h.admit.normalize(ctx, c.tenant, spec)
		return spec, notices, err
	}
	c.h.declare(c.tenant, spec.HostPath)
	if spec.SessionID, err = c.key(spec.SessionID); err != nil {
		return sessions.Spec{}, nil, err
	}
	if c.about == nil {
		c.h.remember(spec.SessionID)
	}
	return spec, notices, nil
}

// maxPlain bounds how many keys are remembered: far more than there may be
// sessions.
const maxPlain = 1 << 16

// remember notes the key of a session that an action without a context asks
// for.
func (h *Handler) remember(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.plain) >= maxPlain {
		clear(h.plain)
	}
	if h.plain == nil {
		h.plain = map[string]bool{}
	}
	h.plain[key] = true
}

// remembered reports whether a key was asked for without a context since the
// handler was made.
func (h *Handler) remembered(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plain[key]
}

// shortList names what a host sent, of which there may be much.
func shortList(names []string) string {
	const most = 20
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.64q", n)
	}
	return b.String()
}

// result is what a host is told of a command, with the original's word of what
// was not kept of its streams.
func (c call) result(r *session.Result, notices []string) sessions.Result {
	out := r.WireHead()
	out.SessionID, out.Notices = c.id(r.SessionID), append(notices, r.Notices...)
	out.Stdout += clipped(r.StdoutBytes - int64(len(r.Stdout)))
	out.Stderr += clipped(r.StderrBytes - int64(len(r.Stderr)))
	return out
}

func clipped(more int64) string {
	if more <= 0 {
		return ""
	}
	return fmt.Sprintf("\n... [raw output clipped at %d bytes, %d bytes discarded]", session.MaxOutput, more)
}

// sessionReply is a session with the fields that the original has for none.
type sessionReply struct {
	sessions.SessionInfo
	HostPath   *string   `json:"host_path"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"`

	Processes map[string]sessions.ProcessInfo `json:"managed_processes,omitempty"`
	Process   *sessions.ProcessInfo           `json:"managed_process,omitempty"`
}

func (c call) session(s sessions.SessionInfo, notices []string) sessionReply {
	out := sessionReply{SessionInfo: profile.Named(s), CreatedAt: stamp(s.CreatedAt), LastUsedAt: stamp(s.LastUsedAt)}
	out.SessionID = c.id(s.SessionID)
	if s.HostPath != "" {
		out.HostPath = &s.HostPath
	}
	out.Notices = append(notices, s.Notices...)
	if len(s.Processes) > 0 {
		out.Processes = make(map[string]sessions.ProcessInfo, len(s.Processes))
		for id, p := range s.Processes {
			out.Processes[id] = c.process(p)
		}
	}
	if p, ok := out.Processes[sessions.DefaultProcess]; ok {
		out.Process = &p
	}
	return out
}

// stamp is a time in the precision of the original's.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func (c call) process(p sessions.ProcessInfo) sessions.ProcessInfo {
	p.SessionID = c.id(p.SessionID)
	p.StartedAt = stamp(p.StartedAt)
	if p.ExitedAt != nil {
		t := stamp(*p.ExitedAt)
		p.ExitedAt = &t
	}
	if p.Args == nil {
		p.Args = []string{}
	}
	if p.EnvKeys == nil {
		p.EnvKeys = []string{}
	}
	return p
}

func execute(ctx context.Context, c call) (any, error) {
	spec, notices, err := c.spec(ctx)
	if err != nil {
		return nil, err
	}
	want, cmd := profile.Translate(spec)
	r, err := c.h.o.Sessions.Exec(ctx, c.caller, want, cmd)
	if err != nil {
		return nil, err
	}
	return answer{c, r, notices}, nil
}

// answer is a command's result on its way to its host. It becomes text, and
// that JSON, only when its turn to be sent has come: a NUL is six bytes there,
// and a host that does not read has many wait.
type answer struct {
	c       call
	r       *session.Result
	notices []string
}

// MarshalJSON implements json.Marshaler.
func (a answer) MarshalJSON() ([]byte, error) { return json.Marshal(a.c.result(a.r, a.notices)) }

func create(ctx context.Context, c call) (any, error) {
	spec, notices, err := c.spec(ctx)
	if err != nil {
		return nil, err
	}
	want, _ := profile.Translate(spec)
	s, err := c.h.o.Sessions.Create(ctx, c.caller, want)
	if err != nil {
		return nil, err
	}
	return c.session(s, notices), nil
}

// ref names a session, and a process in it.
type ref struct {
	SessionID *string         `json:"session_id"`
	ProcessID *string         `json:"process_id"`
	Spec      json.RawMessage `json:"spec"`
}

// ref reads which session, under the key of its tenant.
func (c call) ref() (key, process string, spec json.RawMessage, err error) {
	var r ref
	if err := c.fields(&r); err != nil {
		return "", "", nil, err
	}
	if r.SessionID == nil {
		return "", "", nil, fault.Invalid("session_id is missing")
	}
	id := *r.SessionID
	if c.h.admit.required() && strings.TrimSpace(id) != admittedID {
		return "", "", nil, admissionError("Managed sandbox session_id is runtime-owned: it is %q", admittedID)
	}
	process = sessions.DefaultProcess
	if r.ProcessID != nil {
		process = *r.ProcessID
	}
	key, err = c.key(id)
	return key, process, r.Spec, err
}

func get(ctx context.Context, c call) (any, error) {
	key, _, _, err := c.ref()
	if err != nil {
		return nil, err
	}
	s, err := c.h.o.Sessions.Get(ctx, c.caller, key)
	if err != nil {
		return nil, err
	}
	return c.session(s, nil), nil
}

// mine are the sessions of the tenant's generation that are not asleep, which
// the original does not know.
func (c call) mine(ctx context.Context) ([]sessions.SessionInfo, error) {
	all, err := c.h.o.Sessions.List(ctx, c.caller)
	var out []sessions.SessionInfo
	for _, s := range all {
		if c.has(s.SessionID) && !s.Asleep {
			out = append(out, s)
		}
	}
	return out, err
}

func list(ctx context.Context, c call) (any, error) {
	mine, err := c.mine(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]sessionReply, 0, len(mine))
	for _, s := range mine {
		s.Processes, s.Process = nil, nil // as the original: they are with the one session
		out = append(out, c.session(s, nil))
	}
	return map[string]any{"sessions": out}, nil
}

func remove(ctx context.Context, c call) (any, error) {
	key, _, _, err := c.ref()
	if err != nil {
		return nil, err
	}
	if err := c.h.o.Sessions.Delete(ctx, c.caller, key); err != nil {
		return nil, err
	}
	return map[string]string{"deleted": c.id(key)}, nil
}

func startProcess(ctx context.Context, c call) (any, error) {
	key, _, raw, err := c.ref()
	if err != nil {
		return nil, err
	}
	if c.h.admit.required() {
		return nil, admissionError("Managed processes are disabled for managed sandboxes")
	}
	spec, ignored, err := profile.ParseProcess(raw)
	if err != nil {
		return nil, err
	}
	if len(ignored) > 0 {
		c.h.log.Info("fields of a managed process were ignored", "fields", shortList(ignored))
	}
	p, err := c.h.o.Sessions.StartProcess(ctx, c.caller, key, spec)
	if err != nil {
		return nil, err
	}
	return c.process(p), nil
}

func getProcess(ctx context.Context, c call) (any, error) {
	key, process, _, err := c.ref()
	if err != nil {
		return nil, err
	}
	p, err := c.h.o.Sessions.Process(ctx, c.caller, key, process)
	if err != nil {
		return nil, err
	}
	return c.process(p), nil
}

func stopProcess(ctx context.Context, c call) (any, error) {
	key, process, _, err := c.ref()
	if err != nil {
		return nil, err
	}
	if err := c.h.o.Sessions.StopProcess(ctx, c.caller, key, process); err != nil {
		return nil, err
	}
	return map[string]string{"stopped": process}, nil
}

func status(ctx context.Context, c call) (any, error) {
	st, err := c.h.o.Sessions.Status(ctx, c.caller)
	if err != nil {
		return nil, err
	}
	if c.about != nil { // only what is of its generation
		mine, err := c.mine(ctx)
		if err != nil {
			return nil, err
		}
		st.ActiveSessions, st.Processes = len(mine), 0
		for _, s := range mine {
			for _, p := range s.Processes {
				if p.Status == sessions.ProcessRunning {
					st.Processes++
				}
			}
		}
	}
	if c.h.admit.required() {
		st.Backend.Available = st.Backend.Available && c.h.admit.readiness(ctx).Ready
	}
	return st, nil
}
