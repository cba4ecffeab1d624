// Package toolspec is what a model is told of a session's native tools: their
// names, what they do, a JSON Schema of each request, and where files for the
// user go. The schemas are made of the structures that requests are decoded
// into, so that neither can have a field that the other lacks. It asks nobody
// and runs nothing.
package toolspec

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
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

const maxQuery = 128 // bytes of a query's ID

// Inbox returns where the attachments of a query are inside; root is the
// workspace, "" is /workspace.
func Inbox(root, queryID string) (string, error) { return queryDir(root, tools.InboxDir, queryID) }

// Outbox returns where an agent leaves what is for the user.
func Outbox(root, queryID string) (string, error) { return queryDir(root, tools.OutboxDir, queryID) }

func queryDir(root, dir, queryID string) (string, error) {
	if root == "" {
		root = tools.WorkspacePath
	}
	bad := strings.ContainsFunc(queryID, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
	if bad || queryID == "" || len(queryID) > maxQuery || queryID[0] == '.' {
		return "", sandbox.Errorf(sandbox.Invalid, "query_id %.40q: use 1 to %d letters, digits, dots, underscores and hyphens, with no dot first", queryID, maxQuery)
	}
	return path.Join(root, dir, queryID), nil
}

// Guidance returns what a model is to be told of a session's tools; with a
// query's ID also where files for the user go.
func Guidance(root, queryID string) (string, error) {
	if root == "" {
		root = tools.WorkspacePath
	}
	text := "You have a sandbox of your own. Use its tools rather than work things out in your head: exec for calculations, " +
		"for data and for code, and read, write, edit, glob and grep for files. Answer from what they give, and show a script " +
		"only where the user asks for one. Files that are to last are below " + root + "."
	if queryID == "" {
		return text, nil
	}
	dir, err := Outbox(root, queryID)
	if err != nil {
		return "", err
	}
	return text + " To send files to the user, put them into " + dir + "/ (make that directory first); " +
		"they are sent when your turn ends, so do not paste their content.", nil
}
