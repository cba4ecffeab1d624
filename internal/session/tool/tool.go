// Package tool is the host's half of the native tools and of attachments: it
// asks the agent inside one sandbox for them, by a connection that the caller
// makes.
//
// What a tool could not do is a result that says so. An error of this package
// is a *sandbox.Error: the request was none, or the agent did not answer as
// one does. What it answers is hostile: an answer is bounded before it is
// read, and checked against what was asked and against every limit; one that
// does not hold is refused as a whole. No text of the guest becomes part of an
// error unless it is escaped and cut.
//
// Attachments go in and come out as one tar each. Names are cleaned both ways,
// and an inbox or an outbox is never one that a link leads to.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	maxAnswer   = 1 << 20 // bytes of a tool's result
	maxReason   = 600     // bytes of a text of the guest's
	callTimeout = time.Minute

	routes = "/carboy/tools/"
)

// Options say whose tools they are.
type Options struct {
	// Dial connects to the agent inside.
	Dial agent.Dial
	// Root is the directory that the tools see; "": /workspace.
	Root string
	// User is whose rights they have; "": the sandbox's own user's.
	User string
}

// Tools are those of one session. They may be used by several at once. Close
// them after use.
type Tools struct {
	opts  Options
	guest *agent.Guest
}

// New returns Tools that have called nobody yet.
func New(o Options) *Tools {
	if o.Root == "" {
		o.Root = tools.WorkspacePath
	}
	return &Tools{opts: o, guest: agent.New(o.Dial)}
}

// Close gives up idle connections.
func (t *Tools) Close() { t.guest.Close() }

// Read reads a file or lists a directory.
func (t *Tools) Read(ctx context.Context, q tools.ReadRequest) (tools.ReadResult, error) {
	res, err := call[tools.ReadResult](ctx, t, tools.ToolRead, q)
	if err != nil || !res.OK {
		return tools.ReadResult{Failure: res.Failure}, err
	}
	return res, checkRead(&res)
}

// Write makes or changes a file.
func (t *Tools) Write(ctx context.Context, q tools.WriteRequest) (tools.WriteResult, error) {
	if !utf8.ValidString(q.Content) {
		return tools.WriteResult{Failure: tools.Failure{
			Error: "the content is no UTF-8; send it with the encoding base64", Code: tools.ToolInvalid,
		}}, nil
	}
	res, err := call[tools.WriteResult](ctx, t, tools.ToolWrite, q)
	if err != nil || !res.OK {
		return tools.WriteResult{Failure: res.Failure}, err
	}
	res.Path = q.Path // as it was asked
	return res, nil
}

// Edit replaces a text in a file.
func (t *Tools) Edit(ctx context.Context, q tools.EditRequest) (tools.EditResult, error) {
	if !utf8.ValidString(q.OldString) || !utf8.ValidString(q.NewString) {
		return tools.EditResult{Failure: tools.Failure{
			Error: "old_string and new_string must be UTF-8", Code: tools.ToolInvalid,
		}}, nil
	}
	res, err := call[tools.EditResult](ctx, t, tools.ToolEdit, q)
	if err != nil || !res.OK {
		return tools.EditResult{Failure: res.Failure}, err
	}
	res.Path = q.Path
	return res, nil
}

// Glob looks for names.
func (t *Tools) Glob(ctx context.Context, q tools.GlobRequest) (tools.GlobResult, error) {
	res, err := call[tools.GlobResult](ctx, t, tools.ToolGlob, q)
	if err != nil || !res.OK {
		return tools.GlobResult{Failure: res.Failure}, err
	}
	if err := t.checkGlob(&res); err != nil {
		return tools.GlobResult{}, err
	}
	res.Preview = strings.Join(res.Matches, "\n")
	return res, nil
}

// Grep looks for lines.
func (t *Tools) Grep(ctx context.Context, q tools.GrepRequest) (tools.GrepResult, error) {
	res, err := call[tools.GrepResult](ctx, t, tools.ToolGrep, q)
	if err != nil || !res.OK {
		return tools.GrepResult{Failure: res.Failure}, err
	}
	return res, t.checkGrep(&res)
}

// broken is the error for an answer that is none.
func broken(format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Unavailable, "the sandbox's agent does not answer as it should")
	e.Err = fmt.Errorf("%w: %w", agent.ErrBroken, fmt.Errorf(format, args...))
	return e.WithHint("try again; if it stays so, delete the session")
}

// call makes one call and returns its result, whose Failure is checked.
func call[R any](ctx context.Context, t *Tools, name string, q any) (res R, err error) {
	b, err := t.answer(ctx, name, t.opts.User, q)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(b, &res); err != nil {
		return res, broken("%s: %w", name, err)
	}
	holder, ok := any(&res).(failing)
	if !ok {
		return res, broken("%s: a result without its outcome", name)
	}
	return res, checkFailure(holder.Outcome())
}

// failing is a result of a tool.
type failing interface{ Outcome() *tools.Failure }

// answer makes one call and returns what the agent answers.
func (t *Tools) answer(ctx context.Context, name, user string, q any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := t.post(ctx, name, user, q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return body(ctx, resp, maxAnswer)
}

// post makes one call. The caller closes the answer's body.
func (t *Tools) post(ctx context.Context, name, user string, q any) (*http.Response, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the request can't be sent: %w", err)
	}
	query := url.Values{"root": {t.opts.Root}}
	if user != "" {
		query.Set("user", user)
	}
	return t.do(ctx, routes+name+"?"+query.Encode(), "application/json", bytes.NewReader(b))
}

func (t *Tools) do(ctx context.Context, target, media string, in io.Reader) (*http.Response, error) {
	resp, err := t.guest.Do(ctx, http.MethodPost, target, media, in)
	if err != nil {
		if ctx.Err() != nil {
			return nil, late(ctx)
		}
		return nil, broken("%w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := body(ctx, resp, maxAnswer)
	if err != nil {
		return nil, err
	}
	return nil, refused(resp.StatusCode, b)
}

// body reads an answer that has its bounds.
func body(ctx context.Context, resp *http.Response, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, late(ctx)
	case err != nil:
		return nil, broken("%w", err)
	case int64(len(b)) > limit:
		return nil, broken("an answer of more than %d bytes", limit)
	}
	return b, nil
}

// late is the error for a call that was given up.
func late(ctx context.Context) error {
	cause := context.Cause(ctx)
	if e, ok := errors.AsType[*sandbox.Error](cause); ok {
		return e
	}
	e := sandbox.Errorf(sandbox.Unavailable, "the sandbox's agent did not answer in time")
	e.Err = cause
	return e
}

// kinds are what the agent's refusals mean to who asked.
var kinds = map[int]sandbox.Kind{
	http.StatusBadRequest:            sandbox.Invalid,
	http.StatusRequestEntityTooLarge: sandbox.Invalid,
	http.StatusUnauthorized:          sandbox.Denied,
	http.StatusForbidden:             sandbox.Denied,
	http.StatusNotFound:              sandbox.Conflict, // it was there before
	http.StatusInsufficientStorage:   sandbox.Exhausted,
}

// refused is the error for an answer that is a refusal.
func refused(status int, b []byte) error {
	var refusal struct {
		Message string `json:"message"`
	}
	if status == http.StatusNotFound && json.Unmarshal(b, &refusal) != nil {
		return sandbox.Errorf(sandbox.Unsupported, "the agent of this sandbox has no such tool: an older version made it").
			WithHint("delete the session; its next call makes it anew")
	}
	kind, ok := kinds[status]
	if !ok || json.Unmarshal(b, &refusal) != nil || refusal.Message == "" {
		return broken("status %d", status)
	}
	return sandbox.Errorf(kind, "%s", clean(refusal.Message))
}

// clean makes a text of the guest's fit to show.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

// SkillOf returns the name of the skill in whose package a path is, or "". Its
// caller knows which skills may be read, and which changed.
func SkillOf(root, p string) string {
	if root == "" {
		root = tools.WorkspacePath
	}
	if !path.IsAbs(p) {
		p = path.Join(root, p)
	}
	below := path.Join(root, path.Base(tools.SkillsPath)) + "/"
	rest, ok := strings.CutPrefix(path.Clean(p), below)
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}
