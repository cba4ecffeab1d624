package langbot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// link is one host's connection.
type link struct {
	h        *Handler
	peer     *rpc.Peer
	instance string // "": it said none
}

// call is one action for a tenant.
type call struct {
	*link
	tenant
	data json.RawMessage
}

// action is how one action is answered.
type action struct {
	// control is of the host itself, not of a workspace: its context only has to
	// be of the instance.
	control bool
	// sandbox is about sessions, which may need to be admitted.
	sandbox bool
	do      func(ctx context.Context, c call) (any, error)
}

var actions = map[string]action{
	langbot.ActionPing:         {control: true, do: func(context.Context, call) (any, error) { return nil, nil }},
	langbot.ActionInit:         {control: true, do: initialize},
	langbot.ActionHealth:       {control: true, do: health},
	langbot.ActionBackendInfo:  {control: true, do: backendInfo},
	langbot.ActionGrant:        {control: true, do: grant},
	langbot.ActionRevoke:       {control: true, do: revoke},
	langbot.ActionVerifyShared: {control: true, do: verifyShared},
	langbot.ActionShutdown:     {control: true, do: shutdown},

	langbot.ActionStatus: {do: status},

	langbot.ActionExec:         {sandbox: true, do: execute},
	langbot.ActionCreate:       {sandbox: true, do: create},
	langbot.ActionGet:          {sandbox: true, do: get},
	langbot.ActionList:         {sandbox: true, do: list},
	langbot.ActionDelete:       {sandbox: true, do: remove},
	langbot.ActionStartProcess: {sandbox: true, do: startProcess},
	langbot.ActionGetProcess:   {sandbox: true, do: getProcess},
	langbot.ActionStopProcess:  {sandbox: true, do: stopProcess},

	langbot.ActionListSkills:  {do: listSkills},
	langbot.ActionGetSkill:    {do: getSkill},
	langbot.ActionCreateSkill: {do: createSkill},
	langbot.ActionUpdateSkill: {do: updateSkill},
	langbot.ActionDeleteSkill: {do: deleteSkill},
	langbot.ActionScanSkill:   {do: scanSkill},
	langbot.ActionSkillFiles:  {do: skillFiles},
	langbot.ActionReadSkill:   {do: readSkill},
	langbot.ActionWriteSkill:  {do: writeSkill},
	langbot.ActionPreviewZip:  {do: previewZip},
	langbot.ActionInstallZip:  {do: installZip},
}

// answer serves one action, and writes down why it failed where the host is told
// no more than that.
func (l *link) answer(ctx context.Context, r *langbot.Request) (any, error) {
	out, err := l.serve(ctx, r)
	if err != nil && hidden(err) && !errors.Is(err, context.Canceled) {
		args := []any{"action", r.Action, "error", err}
		if e, ok := errors.AsType[*sandbox.Error](err); ok {
			args = append(args, "cause", e.Err)
		}
		l.h.log.Error("an action failed", args...)
	}
	return out, err
}

// serve answers one action.
func (l *link) serve(ctx context.Context, r *langbot.Request) (any, error) {
	a, ok := actions[r.Action]
	if !ok {
		return nil, rpc.UnknownActionError(r.Action)
	}
	if err := l.mayBeFor(r.Context); err != nil {
		return nil, err
	}
	c := call{link: l, data: r.Data}
	if a.control {
		return a.do(ctx, c)
	}
	if r.Context == nil && l.h.fence.tenanted(l.instance) {
		return nil, denied("Box tenant action requires a trusted Workspace context")
	}
	c.tenant = l.h.tenant(r.Context)
	if a.sandbox && l.h.admit.required() {
		if _, err := l.h.admit.admitted(ctx, r.Context); err != nil {
			return nil, err
		}
	}
	if r.Context == nil {
		return a.do(ctx, c)
	}
	return l.fenced(ctx, a, c)
}

// mayBeFor says whether an action's context is of this connection's instance.
func (l *link) mayBeFor(about *langbot.Context) error {
	switch {
	case about == nil:
		return nil
	case l.instance == "":
		return denied("Box action context needs a connection that says its instance: send the header %s", langbot.HeaderInstance)
	case about.InstanceUUID != l.instance:
		return denied("Box action context does not match the trusted instance")
	}
	return nil
}

// fenced serves an action of a generation that is the newest, or is by this.
// When a newer one came meanwhile, or its grant was withdrawn, its answer is for
// nobody, and what it made is ended.
func (l *link) fenced(ctx context.Context, a action, c call) (any, error) {
	about := c.about
	ctx, leave, sweep, err := l.h.fence.enter(ctx, about)
	if err != nil {
		return nil, err
	}
	defer leave()
	if sweep {
		if err := l.h.sweep(ctx, about); err != nil {
			return nil, err
		}
	}
	out, err := a.do(ctx, c)
	late := errStale
	if l.h.fence.current(about) {
		if late = l.withdrawn(a, about); late == nil {
			return out, c.logical(err)
		}
	}
	// It is the newer generation's time that is taken, not this one's.
	dropErr := l.h.o.Sessions.DropAll(context.WithoutCancel(ctx), c.caller.Owner, c.has)
	if dropErr != nil {
		l.h.log.Warn("sessions that may not be any more were not all ended", "owner", c.caller.Owner, "err", dropErr)
	}
	return nil, late
}

// withdrawn is the error for an action whose workspace had a grant when it began,
// and has none any more: a session that it made was not there to be ended.
func (l *link) withdrawn(a action, about *langbot.Context) error {
	if !a.sandbox || !l.h.admit.required() || l.h.admit.holds(workspaceOf(about)) {
		return nil
	}
	return admissionError("Sandbox admission grant is missing")
}

// logicalError is an error that names sessions by their keys: its host knows them
// by their IDs.
type logicalError struct {
	error
	of tenant
}

// Unwrap implements what errors.Is looks for.
func (e logicalError) Unwrap() error { return e.error }

func (t tenant) logical(err error) error {
	if err == nil || t.about == nil {
		return err
	}
	return logicalError{err, t}
}

// text is what is said of the error, with IDs in the place of keys.
func (e logicalError) text() string {
	from := regexp.MustCompile(regexp.QuoteMeta(prefix(e.of.about)) + `[A-Za-z0-9_.-]*(~[A-Za-z0-9_-]+)?`)
	return from.ReplaceAllStringFunc(errorText(e.error), e.of.id)
}

// errorText is what a host is told of an error: its class and its text, with
// the way out of it. Details of internal errors are for the log.
func errorText(err error) string {
	if l, ok := errors.AsType[logicalError](err); ok {
		return l.text()
	}
	if p, ok := errors.AsType[*permissionError](err); ok {
		return "PermissionError: " + p.text
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return langbot.ClassError + ": the action was given up"
	}
	return profile.Class(err) + ": " + shown(err)
}

// shown is the text of an error that others may see.
func shown(err error) string {
	if hidden(err) {
		return "internal error; the runtime's log has it"
	}
	e, _ := errors.AsType[*sandbox.Error](err)
	if e.Hint != "" {
		return fmt.Sprintf("%s (%s)", profile.Text(e), e.Hint)
	}
	return profile.Text(e)
}

// hidden reports whether others are told nothing of an error but that it was.
func hidden(err error) bool {
	if _, ok := errors.AsType[*permissionError](err); ok {
		return false
	}
	e, ok := errors.AsType[*sandbox.Error](err)
	return !ok || e.Kind == sandbox.Internal && e.Err != nil && profile.Class(err) == langbot.ClassError
}

// fields reads an action's data into one of the structures of this package,
// which is lenient as the original is: what is not known is left out.
func (c call) fields(to any) error {
	if err := strict.Known(c.data, to); err != nil {
		return fault.Invalid("data: a field has the wrong type")
	}
	return nil
}
