package tool

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// MaxRequest is how long the body of a tool's request may be, in bytes.
const MaxRequest = 16 << 20

// Call runs the tool that has a name, with a request in JSON, and returns its
// result: one of package tools. A request that is none, or that has a field
// that the tool does not know, is an error of kind Invalid. The tool exec is
// not among them: it is the runtime's.
func (t *Tools) Call(ctx context.Context, name string, request []byte) (any, error) {
	switch name {
	case tools.ToolRead:
		return run(ctx, request, t.Read)
	case tools.ToolWrite:
		return run(ctx, request, t.Write)
	case tools.ToolEdit:
		return run(ctx, request, t.Edit)
	case tools.ToolGlob:
		return run(ctx, request, t.Glob)
	case tools.ToolGrep:
		return run(ctx, request, t.Grep)
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no tool %.32q", name).WithHint("read, write, edit, glob and grep")
}

// Known reports whether there is a tool of that name, exec apart.
func Known(name string) bool {
	switch name {
	case tools.ToolRead, tools.ToolWrite, tools.ToolEdit, tools.ToolGlob, tools.ToolGrep:
		return true
	}
	return false
}

// CodeOf returns why a tool did not do what it was asked, by the result that
// Call returned; "": it did, or the result is another's.
func CodeOf(res any) string {
	var f tools.Failure
	switch r := res.(type) {
	case tools.ReadResult:
		f = r.Failure
	case tools.WriteResult:
		f = r.Failure
	case tools.EditResult:
		f = r.Failure
	case tools.GlobResult:
		f = r.Failure
	case tools.GrepResult:
		f = r.Failure
	}
	return f.Code
}

func run[Q, R any](ctx context.Context, request []byte, fn func(context.Context, Q) (R, error)) (any, error) {
	var q Q
	if err := decode(request, &q); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the tool's request: %w", err)
	}
	res, err := fn(ctx, q)
	if err != nil {
		return nil, err
	}
	return res, nil
}

func decode(b []byte, q any) error {
	switch {
	case len(b) > MaxRequest:
		return errors.New("it is too long")
	case !utf8.Valid(b):
		return errors.New("it is no UTF-8; send other bytes as base64")
	case !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")):
		return errors.New("it is no JSON object")
	}
	return strict.Unmarshal(b, q)
}

// Plan is what a request is about, as far as that can be told without its
// workspace.
type Plan struct {
	Path  string // the file or directory, as the request has it
	Skill string // whose package it may change; "": none's
	// Bytes and Files are how much there may be more after it; Replaces is the
	// file whose size goes off that.
	Bytes    int64
	Files    int
	Replaces string
}

// PlanOf reads a request for a plan. One that is no request has none: the tool
// refuses it.
func PlanOf(name, root string, request []byte) Plan {
	var q struct {
		tools.WriteRequest
		OldString string `json:"old_string"`
		NewString string `json:"new_string"`
	}
	if json.Unmarshal(request, &q) != nil {
		return Plan{}
	}
	p := Plan{Path: q.Path}
	switch name {
	case tools.ToolWrite:
		p.Skill, p.Files, p.Bytes = SkillOf(root, q.Path), 1, int64(len(q.Content))
		if q.Encoding == tools.EncodingBase64 {
			p.Bytes = int64(base64.StdEncoding.DecodedLen(len(q.Content)))
		}
		if q.Mode != tools.WriteAppend {
			p.Replaces = q.Path
		}
	case tools.ToolEdit:
		p.Skill, p.Bytes = SkillOf(root, q.Path), int64(len(q.NewString)-len(q.OldString))
	}
	return p
}

// Exec returns what a model is shown of how a command ended: no stream longer
// than 50 KiB, and both together in a preview no longer than that. Of what is longer both
// ends are shown.
func Exec(r sessions.ToolResult) sessions.ExecToolResult {
	out := sessions.ExecToolResult{ToolResult: r}
	var capped bool
	out.Stdout, capped = excerpt.Cut(r.Stdout, tools.MaxToolBytes)
	out.StdoutTruncated = r.StdoutTruncated || capped
	out.Stderr, capped = excerpt.Cut(r.Stderr, tools.MaxToolBytes)
	out.StderrTruncated = r.StderrTruncated || capped
	preview := out.Stdout + out.Stderr
	if out.Stdout != "" && out.Stderr != "" {
		preview = "stdout:\n" + out.Stdout + "\n\nstderr:\n" + out.Stderr
	}
	if out.Preview, capped = excerpt.Cut(preview, tools.MaxToolBytes); capped {
		out.TruncatedBy = tools.ByBytes
	}
	out.Truncated = out.StdoutTruncated || out.StderrTruncated || capped
	return out
}

// first returns what of a text fits into limit bytes, whole characters only,
// and whether that is less than all.
func first(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit], true
}
