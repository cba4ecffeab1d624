package boxservice

import "github.com/carboy-sandbox/carboy/internal/session/toolspec"

// Tools returns the native tools as a model is told of them: name, description,
// and a JSON Schema of the parameters. What a model says for "exec" is what
// Service.ExecuteTool takes; the others are the daemon's, by the API
// (client.SessionRead and those beside it).
func Tools() []ToolSpec { return toolspec.Tools() }

// Guidance returns what to tell a model of its tools besides; with the ID of a
// query also where files for the user go, which client.Collect takes from there.
func Guidance(queryID string) (string, error) { return toolspec.Guidance("", queryID) }
