package langbot

import (
	"context"
	"strings"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// tenant is for whom an action is: a workspace in one generation, or, where
// about is nil, the daemon's own user.
type tenant struct {
	caller sandbox.Caller
	about  *langbot.Context
}

func (h *Handler) tenant(about *langbot.Context) tenant {
	if about == nil {
		return tenant{caller: sandbox.Caller{Owner: h.o.Owner}}
	}
	return tenant{caller: sandbox.Caller{Owner: ownerOf(about.InstanceUUID, about.WorkspaceUUID)}, about: about}
}

// ownerOf is who has a workspace's sessions.
func ownerOf(instance, workspace string) string {
	return "box:" + rpc.Namespace(instance, workspace)
}

// prefix is that of the keys of a workspace's sessions in one generation.
func prefix(about *langbot.Context) string {
	return rpc.KeyPrefix(*about)
}

// key is the key of the session that a host calls id. With a context it is
// longer; no two IDs have the same, though the paths that hosts make of them for
// their relays may be: see reached.
func (t tenant) key(id string) (string, error) {
	id = strings.TrimSpace(id)
	if id == "" {
		return "", fault.Invalid("session_id: must not be empty")
	}
	if t.about == nil {
		return id, nil
	}
	if err := request.CheckKey(id); err != nil { // a key hides what is in it
		return "", err
	}
	key := rpc.Key(id)
	if key == "" {
		return "", fault.Invalid("session_id %.80q: has no letter or digit", id)
	}
	return prefix(t.about) + key, nil
}

// id is what a host calls the session of a key.
func (t tenant) id(key string) string {
	if t.about == nil {
		return key
	}
	of, ok := strings.CutPrefix(key, prefix(t.about))
	if !ok {
		return key
	}
	return rpc.KeyID(of)
}

// has reports whether a key is of the tenant's generation.
func (t tenant) has(key string) bool {
	return t.about == nil || strings.HasPrefix(key, prefix(t.about)) && len(key) > len(prefix(t.about))
}

// reached finds the session of a process whose relay a host names by path: its
// own rule may make the same path of several IDs. The one that has such a
// process is meant; where several have, none is, as it would be another's whose
// lines are read.
func (h *Handler) reached(ctx context.Context, t tenant, path, process string) (key string, err error) {
	if t.about == nil {
		return path, nil
	}
	all, err := h.o.Sessions.List(ctx, t.caller)
	if err != nil {
		return "", err
	}
	named := strings.TrimPrefix(path, prefix(t.about))
	for _, s := range all {
		if !t.has(s.SessionID) || s.SessionID == path || rpc.CleanID(t.id(s.SessionID)) != named {
			continue
		}
		if _, has := s.Processes[process]; !has {
			continue
		}
		if key != "" {
			return "", ambiguous(named, process)
		}
		key = s.SessionID
	}
	if key == "" {
		return path, nil
	}
	if _, err := h.o.Sessions.Process(ctx, t.caller, path, process); err == nil {
		return "", ambiguous(named, process)
	}
	return key, nil
}

func ambiguous(named, process string) error {
	return sandbox.Errorf(sandbox.Conflict, "several sessions whose IDs come to %s have a managed process %.64q", named, process).
		WithHint("give them IDs of letters, digits, . _ and - alone")
}
