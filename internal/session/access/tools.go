package access

import (
	"context"
	"encoding/json"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

// Tool runs a native tool in a session that is there, with a request in JSON,
// and returns its result. What one changes of a skill's package is taken into
// the store as what a command changes is.
func (a *Access) Tool(ctx context.Context, c Caller, id, name string, request []byte) (any, error) {
	skill := ""
	if name == box.ToolWrite || name == box.ToolEdit {
		var at struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(request, &at) == nil { // else the tool refuses it
			skill = tool.SkillOf("", at.Path)
		}
	}
	return borrowed(ctx, a, c, id, skill, func(t *tool.Tools) (any, error) { return t.Call(ctx, name, request) })
}

// Deliver puts a query's attachments into a session that is there.
func (a *Access) Deliver(ctx context.Context, c Caller, id string, in box.AttachmentsIn) (box.AttachmentsDelivered, error) {
	return borrowed(ctx, a, c, id, "", func(t *tool.Tools) (box.AttachmentsDelivered, error) { return t.Deliver(ctx, in) })
}

// Collect takes what the agent of a session that is there left for its user.
func (a *Access) Collect(ctx context.Context, c Caller, id string, q box.CollectRequest) (box.Collected, error) {
	return borrowed(ctx, a, c, id, "", func(t *tool.Tools) (box.Collected, error) { return t.Collect(ctx, q.QueryID) })
}

// borrowed runs fn with the tools of a session, which is in use meanwhile.
func borrowed[R any](ctx context.Context, a *Access, c Caller, id, skill string, fn func(*tool.Tools) (R, error)) (R, error) {
	u, err := a.o.Runtime.Borrow(ctx, c.Caller, id, skill)
	if err != nil {
		var none R
		return none, err
	}
	defer u.Release()
	t := tool.New(tool.Options{Dial: u.Dial, Root: u.Info().MountPath})
	defer t.Close()
	return fn(t)
}
