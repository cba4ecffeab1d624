package toolspec_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

// schemas are those of the tools, by name.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	all := map[string]*jsonschema.Schema{}
	for _, s := range toolspec.Tools() {
		var schema jsonschema.Schema
		if err := json.Unmarshal(s.Parameters, &schema); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if s.Description == "" {
			t.Errorf("%s has no description", s.Name)
		}
		all[s.Name] = &schema
	}
	return all
}

// requests are what each tool is decoded into.
var requests = map[string]any{
	tools.ToolExec: &sessions.ExecToolRequest{}, tools.ToolRead: &tools.ReadRequest{}, tools.ToolWrite: &tools.WriteRequest{},
	tools.ToolEdit: &tools.EditRequest{}, tools.ToolGlob: &tools.GlobRequest{}, tools.ToolGrep: &tools.GrepRequest{},
}

// A schema has the fields that the decoder has, and each says what it is for.
func TestSchemasHaveTheDecodersFields(t *testing.T) {
	all := schemas(t)
	if got, want := slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(requests)); !slices.Equal(got, want) {
		t.Errorf("tools are %v, want %v", got, want)
	}
	for name, q := range requests {
		var fields []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(q).Elem()) {
			field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, field)
			if p := all[name].Properties[field]; p == nil || p.Description == "" {
				t.Errorf("%s: the model is not told of %s", name, field)
			}
		}
		slices.Sort(fields)
		if got := slices.Sorted(maps.Keys(all[name].Properties)); !slices.Equal(got, fields) {
			t.Errorf("%s has %v, and is decoded into %v", name, got, fields)
		}
	}
}

// What a schema accepts the decoder does, and what one refuses of these the
// other does: but for what a tool itself refuses, which the schema knows.
func TestSchemasAndTheDecoderAgree(t *testing.T) {
	tests := []struct {
		tool, request   string
		decodes, agrees bool // the second: the schema accepts it
	}{
		{"exec", `{"command":"ls","workdir":"/workspace/a","timeout_sec":5,"env":{"A":"1"},"description":"look"}`, true, true},
		{"exec", `{"command":"ls"}`, true, true},
		{"exec", `{"command":"ls","env":{"A":1}}`, false, false},
		{"exec", `{"command":"ls","network":"on"}`, false, false},
		{"read", `{"path":"f"}`, true, true},
		{"read", `{"path":"f","offset":3,"limit":4,"max_bytes":5,"encoding":"base64","byte_offset":6}`, true, true},
		{"read", `{"path":"f","encoding":"latin1"}`, true, false},
		{"read", `{"path":7}`, false, false},
		{"read", `{"path":"f","offset":"3"}`, false, false},
		{"read", `{"path":"f","offset":1.5}`, false, false},
		{"read", `{}`, true, false},
		{"read", `{"path":"f","user":"root"}`, false, false},
		{"write", `{"path":"f","content":"x","encoding":"text","mode":"append"}`, true, true},
		{"write", `{"path":"f","content":"x","mode":"truncate"}`, true, false},
		{"write", `{"path":"f","content":"x","perm":511}`, false, false},
		{"edit", `{"path":"f","old_string":"a","new_string":""}`, true, true},
		{"edit", `{"path":"f","old_string":"a","new_string":"b","all":true}`, false, false},
		{"glob", `{"pattern":"*.go"}`, true, true},
		{"glob", `{"pattern":"*.go","path":"src"}`, true, true},
		{"glob", `{"pattern":"*.go","root":"/"}`, false, false},
		{"grep", `{"pattern":"x","path":"src","include":"*.py"}`, true, true},
		{"grep", `{"pattern":"x","exclude":"*.py"}`, false, false},
		{"grep", `[]`, false, false},
	}
	all := schemas(t)
	for _, tt := range tests {
		t.Run(tt.tool+tt.request, func(t *testing.T) {
			d := json.NewDecoder(bytes.NewReader([]byte(tt.request)))
			d.DisallowUnknownFields()
			q := reflect.New(reflect.TypeOf(requests[tt.tool]).Elem()).Interface()
			if err := d.Decode(q); (err == nil) != tt.decodes {
				t.Errorf("the decoder: %v", err)
			}
			schema, err := all[tt.tool].Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			var v any
			if err := json.Unmarshal([]byte(tt.request), &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); (err == nil) != tt.agrees {
				t.Errorf("the schema: %v", err)
			}
		})
	}
}

// What a model is told of defaults and limits is so.
func TestSchemasSayTheLimits(t *testing.T) {
	all := schemas(t)
	for field, numbers := range map[string][]int{"limit": {tools.ReadLines, tools.MaxReadLines}, "max_bytes": {tools.MaxToolBytes}} {
		for _, n := range numbers {
			if b, _ := json.Marshal(n); !strings.Contains(all[tools.ToolRead].Properties[field].Description, string(b)) {
				t.Errorf("read: %s does not say %d", field, n)
			}
		}
	}
}
