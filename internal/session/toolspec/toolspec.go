// Package toolspec is what a model is told of a session's native tools: their
// names, what they do, a JSON Schema of each request, and where files for the
// user go. The schemas are made of the structures that requests are decoded
// into, so that neither can have a field that the other lacks. It asks nobody
// and runs nothing.
package toolspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
)

// choice is a field that has one of a few values.
type choice struct {
	field  string
	values []any
}

var (
	encodings = choice{"encoding", []any{tools.EncodingText, tools.EncodingBase64}}
	modes     = choice{"mode", []any{tools.WriteOverwrite, tools.WriteAppend}}
)

var specs = sync.OnceValues(func() ([]tools.ToolSpec, error) {
	var all []tools.ToolSpec
	for _, t := range []struct {
		name, description string
		schema            func(name, description string, choices []choice) (tools.ToolSpec, error)
		choices           []choice
	}{
		{tools.ToolExec, "Runs a shell command in the sandbox, and answers its exit code and what it wrote.", spec[sessions.ExecToolRequest], nil},
		{tools.ToolRead, "Reads a file, by lines or by bytes, or lists a directory. What is left out is said, with where to go on.", spec[tools.ReadRequest], []choice{encodings}},
		{tools.ToolWrite, "Writes a file, in place of what it has or after it, and makes the directories above it.", spec[tools.WriteRequest], []choice{encodings, modes}},
		{tools.ToolEdit, "Replaces a text that is in a file exactly once.", spec[tools.EditRequest], nil},
		{tools.ToolGlob, "Finds files by their names, the newest first.", spec[tools.GlobRequest], nil},
		{tools.ToolGrep, "Finds lines of files by a regular expression.", spec[tools.GrepRequest], nil},
	} {
		s, err := t.schema(t.name, t.description, t.choices)
		if err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", t.name, err)
		}
		all = append(all, s)
	}
	return all, nil
})

// Tools returns the native tools, exec first. Their parameters are objects that
// have no other fields than those that are named.
func Tools() []tools.ToolSpec {
	all, err := specs()
	if err != nil {
		panic(err) // the types are ours, and a test looks at each
	}
	return slices.Clone(all)
}

func spec[Q any](name, description string, choices []choice) (tools.ToolSpec, error) {
	s, err := jsonschema.For[Q](nil)
	if err != nil {
		return tools.ToolSpec{}, err
	}
	for _, c := range choices {
		field := s.Properties[c.field]
		if field == nil {
			return tools.ToolSpec{}, fmt.Errorf("there is no field %s", c.field)
		}
		field.Enum = c.values
	}
	b, err := json.Marshal(s)
	return tools.ToolSpec{Name: name, Description: description, Parameters: b}, err
}

// List returns the tools, and what a model is to be told of them; with a query's
// ID also where files for the user go. root is the workspace; "": /workspace.
func List(root, queryID string) (tools.ToolList, error) {
	text, err := Guidance(root, queryID)
	if err != nil {
		return tools.ToolList{}, err
	}
	return tools.ToolList{Tools: Tools(), Guidance: text}, nil
}
