package tool

import (
	"bytes"
	"context"
	"errors"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/strict"
)

// MaxRequest is how long the body of a tool's request may be, in bytes.
const MaxRequest = 16 << 20

// Call runs the tool that has a name, with a request in JSON, and returns its
// result: one of package box. A request that is none, or that has a field
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
