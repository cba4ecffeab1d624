package boxrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/boxwire"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/profile"
	"github.com/carboy-sandbox/carboy/internal/strict"
)

// link is one host's connection.
type link struct {
	h        *Handler
	peer     *boxwire.Peer
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
	box.ActionPing:         {control: true, do: func(context.Context, call) (any, error) { return nil, nil }},
	box.ActionInit:         {control: true, do: initialize},
	box.ActionHealth:       {control: true, do: health},
	box.ActionBackendInfo:  {control: true, do: backendInfo},
	box.ActionGrant:        {control: true, do: grant},
	box.ActionRevoke:       {control: true, do: revoke},
	box.ActionVerifyShared: {control: true, do: verifyShared},
	box.ActionShutdown:     {control: true, do: shutdown},

	box.ActionStatus: {do: status},

	box.ActionExec:         {sandbox: true, do: execute},
	box.ActionCreate:       {sandbox: true, do: create},
	box.ActionGet:          {sandbox: true, do: get},
	box.ActionList:         {sandbox: true, do: list},
	box.ActionDelete:       {sandbox: true, do: remove},
	box.ActionStartProcess: {sandbox: true, do: startProcess},
	box.ActionGetProcess:   {sandbox: true, do: getProcess},
	box.ActionStopProcess:  {sandbox: true, do: stopProcess},

	box.ActionListSkills:  {do: listSkills},
	box.ActionGetSkill:    {do: getSkill},
	box.ActionCreateSkill: {do: createSkill},
	box.ActionUpdateSkill: {do: updateSkill},
	box.ActionDeleteSkill: {do: deleteSkill},
	box.ActionScanSkill:   {do: scanSkill},
	box.ActionSkillFiles:  {do: skillFiles},
	box.ActionReadSkill:   {do: readSkill},
	box.ActionWriteSkill:  {do: writeSkill},
	box.ActionPreviewZip:  {do: previewZip},
	box.ActionInstallZip:  {do: installZip},
}

// answer serves one action, and writes down why it failed where the host is told
// no more than that.
func (l *link) answer(ctx context.Context, r *box.Request) (any, error) {
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
func (l *link) serve(ctx context.Context, r *box.Request) (any, error) {
	a, ok := actions[r.Action]
	if !ok {
		return nil, boxwire.UnknownActionError(r.Action)
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
func (l *link) mayBeFor(about *box.Context) error {
	switch {
	case about == nil:
		return nil
	case l.instance == "":
		return denied("Box action context needs a connection that says its instance: send the header %s", box.HeaderInstance)
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
func (l *link) withdrawn(a action, about *box.Context) error {
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
		return box.ClassError + ": the action was given up"
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
		return fmt.Sprintf("%s (%s)", e.Msg, e.Hint)
	}
	return e.Msg
}

// hidden reports whether others are told nothing of an error but that it was.
func hidden(err error) bool {
	if _, ok := errors.AsType[*permissionError](err); ok {
		return false
	}
	e, ok := errors.AsType[*sandbox.Error](err)
	return !ok || e.Kind == sandbox.Internal && e.Err != nil && profile.Class(err) == box.ClassError
}

// fields reads an action's data into one of the structures of this package,
// which is lenient as the original is: what is not known is left out.
func (c call) fields(to any) error {
	if err := strict.Known(c.data, to); err != nil {
		return profile.Invalid("data: a field has the wrong type")
	}
	return nil
}
