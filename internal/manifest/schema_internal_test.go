package manifest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestSchema: what is embedded is what the types say. With -update it is made anew.
func TestSchema(t *testing.T) {
	want, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("run go test -update if this is meant (-want +got):\n%s", d)
	}
}

// describe makes the schema, of the types that files are read into.
func describe() ([]byte, error) {
	opts := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[size](): {AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: new(float64)}, {Type: "string"}}},
		reflect.TypeFor[names](): {AnyOf: []*jsonschema.Schema{
			{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}},
		}},
	}}
	bottle, err := jsonschema.For[Bottle](opts)
	if err != nil {
		return nil, fmt.Errorf("the schema of a bottle: %w", err)
	}
	agent, err := jsonschema.For[Agent](opts)
	if err != nil {
		return nil, fmt.Errorf("the schema of an agent: %w", err)
	}
	for _, s := range []*jsonschema.Schema{bottle, agent} {
		withoutNull(s)
	}
	name := &jsonschema.Schema{Pattern: validName().String()}
	for _, c := range []struct {
		of     *jsonschema.Schema
		field  string
		values []any
	}{
		{bottle, "network", []any{sandbox.NetworkOff, sandbox.NetworkPolicy, sandbox.NetworkOn}},
		{bottle, "user", []any{"user", "root"}},
	} {
		c.of.Properties[c.field].Enum = c.values
	}
	for _, s := range []*jsonschema.Schema{bottle, agent} {
		if p := s.Properties["policy"]; p != nil && p.Properties["default"] != nil {
			p.Properties["default"].Enum = []any{policy.DefaultDeny, policy.DefaultPublic, policy.DefaultRead}
		}
	}
	of := func(ref, what string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", Description: what, PropertyNames: name, AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/" + ref}}
	}
	all := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema",
		Title:  "Bottles and agents of Carboy",
		Type:   "object",
		Defs:   map[string]*jsonschema.Schema{"bottle": bottle, "agent": agent},
		Properties: map[string]*jsonschema.Schema{
			"bottles": of("bottle", "bottles, by name"), "agents": of("agent", "agents, by name"),
		},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	b, err := json.MarshalIndent(all, "", "  ")
	return append(b, '\n'), err
}

// withoutNull takes null from what a value may be: what is not said is left out.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" }); len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		withoutNull(p)
	}
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
}
