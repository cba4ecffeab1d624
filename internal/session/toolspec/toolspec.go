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

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// choice is a field that has one of a few values.
type choice struct {
	field  string
	values []any
}

var (
	encodings = choice{"encoding", []any{langbot.EncodingText, langbot.EncodingBase64}}
	modes     = choice{"mode", []any{langbot.WriteOverwrite, langbot.WriteAppend}}
)

var specs = sync.OnceValues(func() ([]langbot.ToolSpec, error) {
	var all []langbot.ToolSpec
	for _, t := range []struct {
		name, description string
		schema            func(name, description string, choices []choice) (langbot.ToolSpec, error)
		choices           []choice
	}{
		{langbot.ToolExec, "Runs a shell command in the sandbox, and answers its exit code and what it wrote.", spec[langbot.ExecToolRequest], nil},
		{langbot.ToolRead, "Reads a file, by lines or by bytes, or lists a directory. What is left out is said, with where to go on.", spec[langbot.ReadRequest], []choice{encodings}},
		{langbot.ToolWrite, "Writes a file, in place of what it has or after it, and makes the directories above it.", spec[langbot.WriteRequest], []choice{encodings, modes}},
		{langbot.ToolEdit, "Replaces a text that is in a file exactly once.", spec[langbot.EditRequest], nil},
		{langbot.ToolGlob, "Finds files by their names, the newest first.", spec[langbot.GlobRequest], nil},
		{langbot.ToolGrep, "Finds lines of files by a regular expression.", spec[langbot.GrepRequest], nil},
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
func Tools() []langbot.ToolSpec {
	all, err := specs()
	if err != nil {
		panic(err) // the types are ours, and a test looks at each
	}
	return slices.Clone(all)
}

func spec[Q any](name, description string, choices []choice) (langbot.ToolSpec, error) {
	s, err := jsonschema.For[Q](nil)
	if err != nil {
		return langbot.ToolSpec{}, err
	}
	for _, c := range choices {
		field := s.Properties[c.field]
		if field == nil {
			return langbot.ToolSpec{}, fmt.Errorf("there is no field %s", c.field)
		}
		field.Enum = c.values
	}
	b, err := json.Marshal(s)
	return langbot.ToolSpec{Name: name, Description: description, Parameters: b}, err
}

// List returns the tools, and what a model is to be told of them; with a query's
// ID also where files for the user go. root is the workspace; "": /workspace.
func List(root, queryID string) (langbot.ToolList, error) {
	text, err := Guidance(root, queryID)
	if err != nil {
		return langbot.ToolList{}, err
	}
	return langbot.ToolList{Tools: Tools(), Guidance: text}, nil
}
