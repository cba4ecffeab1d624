package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// ToolName is what the tool is called by which an agent spawns pods.
const ToolName = "SpawnPod"

// ToolOptions are for which pod a tool is.
type ToolOptions struct {
	Spawner string
	Socket  string        // where the spawner listens
	Cwd     string        // the spawner's
	Model   any           // the spawner's, by name
	Scope   *scope.Shared // what the spawner's tools ask; nil: none does
}

// Meta is what a model is told of a tool.
type Meta struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the input
}

// Tool is something that a model may call.
type Tool interface {
	// Execute reads a JSON object and does what it says. Its error is a *ToolError.
	Execute(ctx context.Context, input string) (ToolOutput, error)
}

// ToolOutput is what a model is told.
type ToolOutput struct {
	Summary string
}

// The codes of a ToolError.
const (
	InvalidArgument = "invalid_argument" // another input may do
	ExecutionFailed = "execution_failed"
)

// ToolError is why a tool did not do what it was asked, in words for a model.
type ToolError struct {
	Code    string
	Message string
	Err     error
}

// Error is the message.
func (e *ToolError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *ToolError) Unwrap() error { return e.Err }

// Tool makes the factory of a spawner's tool.
func (r *Registry) Tool(o ToolOptions) func() (Meta, Tool) {
	return func() (Meta, Tool) {
		return Meta{
			Name: ToolName,
			Description: "Start another agent on a task of its own, with a part of your files. " +
				"What it may write you can't write until it has stopped; you can go on reading it.",
			Schema: json.RawMessage(toolSchema),
		}, &spawnTool{r: r, o: o}
	}
}

const toolSchema = `{
  "type": "object",
  "properties": {
    "name": {"type": "string", "description": "of letters, digits, - and _"},
    "task": {"type": "string", "description": "what the agent is to do"},
    "scope": {
      "type": "array",
      "minItems": 1,
      "items": {
        "type": "object",
        "properties": {
          "target": {"type": "string", "description": "an absolute path"},
          "permission": {"type": "string", "enum": ["read", "write"]},
          "recursive": {"type": "boolean", "default": true, "description": "false: the target and what lies directly in it"}
        },
        "required": ["target", "permission"],
        "additionalProperties": false
      }
    }
  },
  "required": ["name", "task", "scope"],
  "additionalProperties": false
}`

// toolInput is what the tool is called with.
type toolInput struct {
	Name  *string      `json:"name"`
	Task  *string      `json:"task"`
	Scope []scope.Rule `json:"scope"`
}

type spawnTool struct {
	r *Registry
	o ToolOptions
}

// Execute implements Tool.
func (t *spawnTool) Execute(ctx context.Context, input string) (ToolOutput, error) {
	in, err := t.parse(input)
	if err != nil {
		return ToolOutput{}, &ToolError{Code: InvalidArgument, Message: err.Error(), Err: err}
	}
	if t.o.Scope != nil {
		if err := t.r.Share(ctx, t.o.Spawner, t.o.Scope); err != nil {
			return ToolOutput{}, toolError(err)
		}
	}
	p, err := t.r.Spawn(ctx, Request{
		Spawner: t.o.Spawner, Name: *in.Name, Task: *in.Task, Allow: in.Scope, Socket: t.o.Socket, Cwd: t.o.Cwd, Model: t.o.Model,
	})
	if err != nil {
		return ToolOutput{}, toolError(err)
	}
	return ToolOutput{Summary: fmt.Sprintf("spawned pod `%s` listening on %s", p.Name, p.Socket)}, nil
}

func (t *spawnTool) parse(input string) (in toolInput, err error) {
	if err := strict.Unmarshal([]byte(input), &in); err != nil {
		return in, fmt.Errorf("invalid SpawnPod input: %w", err)
	}
	switch {
	case in.Name == nil:
		return in, errors.New("invalid SpawnPod input: it needs a name")
	case in.Task == nil:
		return in, errors.New("invalid SpawnPod input: it needs a task")
	case *in.Name == t.o.Spawner:
		return in, fmt.Errorf("spawned pod name `%s` collides with spawner's own name", *in.Name)
	case len(in.Scope) == 0:
		return in, errors.New("scope must not be empty")
	}
	for _, rule := range in.Scope {
		if !strings.HasPrefix(rule.Target, "/") {
			return in, fmt.Errorf("scope.target must be absolute: %s", scope.Shown(rule.Target))
		}
	}
	return in, nil
}

// toolError says whose fault an error is, with its hint, which a model can't ask for.
func toolError(err error) error {
	code, text := ExecutionFailed, err.Error()
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		switch e.Kind {
		case sandbox.Invalid, sandbox.Conflict, sandbox.NotFound, sandbox.Denied:
			code = InvalidArgument
		}
		if e.Hint != "" {
			text += "; " + e.Hint
		}
	}
	return &ToolError{Code: code, Message: text, Err: err}
}
