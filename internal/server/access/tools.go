package access

import (
	"context"
	"errors"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

// What AuditRecord.Action says of tools and of attachments.
const (
	actTool    = "tool:"
	actDeliver = "attachments:deliver"
	actCollect = "attachments:collect"
	actPurge   = "attachments:purge"

	statusOK = "ok"
)

// Tool runs a native tool in a session that is there, with a request in JSON,
// and returns its result. What one changes of a skill's package is taken into
// the store as what a command changes is. A write that the workspace's quota
// has no room for is a result that says so, whether the file system refused it or we did.
func (a *Access) Tool(ctx context.Context, c Caller, id, name string, request []byte) (any, error) {
	p := tool.PlanOf(name, "", request)
	action := actTool + name
	if !tool.Known(name) { // which is a stranger's text
		action = actTool
	}
	job := session.Job{Action: action, Path: p.Path, Skill: p.Skill, Bytes: p.Bytes, Files: p.Files, Replaces: p.Replaces}
	res, err := borrowed(ctx, a, c, id, job, func(t *tool.Tools) (any, error) { return t.Call(ctx, name, request) })
	if over, ok := errors.AsType[*quota.ExceededError](err); ok {
		f := tools.Failure{Error: over.Error(), Code: tools.ToolNoSpace}
		if name == tools.ToolEdit {
			return tools.EditResult{Failure: f, Path: p.Path}, nil
		}
		return tools.WriteResult{Failure: f, Path: p.Path}, nil
	}
	return res, a.noted(c, id, err)
}

// Deliver puts a query's attachments into a session that is there.
func (a *Access) Deliver(ctx context.Context, c Caller, id string, in tools.AttachmentsIn) (tools.AttachmentsDelivered, error) {
	job := session.Job{Action: actDeliver, Files: len(in.Files) + 2}
	for _, f := range in.Files {
		job.Bytes += int64(len(f.Data))
	}
	res, err := borrowed(ctx, a, c, id, job, func(t *tool.Tools) (tools.AttachmentsDelivered, error) { return t.Deliver(ctx, in) })
	return res, a.noted(c, id, err)
}

// Collect takes what the agent of a session that is there left for its user.
func (a *Access) Collect(ctx context.Context, c Caller, id string, q tools.CollectRequest) (tools.Collected, error) {
	job := session.Job{Action: actCollect}
	res, err := borrowed(ctx, a, c, id, job, func(t *tool.Tools) (tools.Collected, error) { return t.Collect(ctx, q.QueryID) })
	return res, a.noted(c, id, err)
}

// Purge removes the inboxes and outboxes of all queries of a session that is
// there.
func (a *Access) Purge(ctx context.Context, c Caller, id string) (tools.Purged, error) {
	job := session.Job{Action: actPurge}
	res, err := borrowed(ctx, a, c, id, job, func(t *tool.Tools) (out tools.Purged, err error) {
		out.Notices, err = t.Purge(ctx)
		return out, err
	})
	return res, a.noted(c, id, err)
}

// noted keeps an error among its owner's newest.
func (a *Access) noted(c Caller, id string, err error) error {
	if err == nil {
		return nil
	}
	return a.note(c, id, err)
}

// borrowed runs fn with the tools of a session, which is in use meanwhile.
func borrowed[R any](ctx context.Context, a *Access, c Caller, id string, job session.Job, fn func(*tool.Tools) (R, error)) (R, error) {
	u, err := a.o.Runtime.Borrow(ctx, c.Caller, id, job)
	if err != nil {
		var none R
		return none, err
	}
	status := ""
	defer func() { u.Finish(status, err) }()
	t := tool.New(tool.Options{Dial: u.Dial, Root: u.Info().MountPath})
	defer t.Close()
	res, err := fn(t)
	status = statusOf(res, err)
	return res, err
}

// statusOf is how a job ended, as its record has it: what a tool could not do
// has a code.
func statusOf(res any, err error) string {
	if err != nil {
		return ""
	}
	if code := tool.CodeOf(res); code != "" {
		return code
	}
	return statusOK
}
