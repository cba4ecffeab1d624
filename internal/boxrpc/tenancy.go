package boxrpc

import (
	"strings"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/boxwire"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/profile"
)

// tenant is for whom an action is: a workspace in one generation, or, where
// about is nil, the daemon's own user.
type tenant struct {
	caller sandbox.Caller
	about  *box.Context
}

func (h *Handler) tenant(about *box.Context) tenant {
	if about == nil {
		return tenant{caller: sandbox.Caller{Owner: h.o.Owner}}
	}
	return tenant{caller: sandbox.Caller{Owner: ownerOf(about.InstanceUUID, about.WorkspaceUUID)}, about: about}
}

// ownerOf is who has a workspace's sessions.
func ownerOf(instance, workspace string) string {
	return "box:" + boxwire.Namespace(instance, workspace)
}

// prefix is that of the keys of a workspace's sessions in one generation.
func prefix(about *box.Context) string {
	return boxwire.KeyPrefix(*about)
}

// key is the key of the session that a host calls id. With a context it is
// longer, has none but letters, digits, and . _ -, and is what a relay's path
// names; hosts know the rule, as they make that path.
func (t tenant) key(id string) (string, error) {
	id = strings.TrimSpace(id)
	if id == "" {
		return "", profile.Invalid("session_id: must not be empty")
	}
	if t.about == nil {
		return id, nil
	}
	safe := boxwire.CleanID(id)
	if safe == "" {
		return "", profile.Invalid("session_id %.80q: has no letter or digit", id)
	}
	return prefix(t.about) + safe, nil
}

// id is what a host calls the session of a key.
func (t tenant) id(key string) string {
	if t.about == nil {
		return key
	}
	return strings.TrimPrefix(key, prefix(t.about))
}

// has reports whether a key is of the tenant's generation.
func (t tenant) has(key string) bool {
	return t.about == nil || strings.HasPrefix(key, prefix(t.about)) && len(key) > len(prefix(t.about))
}
