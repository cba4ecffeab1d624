package strict_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

type inner struct {
	Scopes []string `json:"scopes"`
}

type value struct {
	Name  string                     `json:"name"`
	N     int                        `json:"n"`
	In    inner                      `json:"in"`
	Raw   json.RawMessage            `json:"raw"`
	Any   map[string]any             `json:"any"`
	Raws  map[string]json.RawMessage `json:"raws"`
	Plain int
	inner
}

// Each that is refused for a name is taken by encoding/json.
func TestUnmarshal(t *testing.T) {
	tests := []struct {
		name, text string
		want       string // of the error; "" for none
		taken      bool   // by encoding/json, as something else than it says
	}{
		{"ok", `{"name":"a","n":1,"in":{"scopes":[]},"raw":{"Name":1},"any":{"a":1,"A":2},"Plain":1,"scopes":["x"]}`, "", false},
		{"case", `{"Name":"a"}`, `no field "Name"`, true},
		{"case-beside", `{"name":"a","NAME":"b"}`, `no field "NAME"`, true},
		{"long-s", `{"in":{"scopes":["read"],"ſcopes":["admin"]}}`, `no field "in.ſcopes"`, true},
		{"long-s-escaped", `{"scopes":["read"],"\u017fcopes":["admin"]}`, `no field "ſcopes"`, true},
		{"untagged", `{"plain":1}`, `no field "plain"`, true},
		{"twice", `{"n":1,"n":2}`, `"n" is there twice`, true},
		{"twice-escaped", `{"n":1,"\u006e":2}`, `"n" is there twice`, true},
		{"twice-in-any", `{"any":{"a":{"b":1,"b":2}}}`, `"b" is there twice`, true},
		{"twice-in-raw", `{"raw":{"b":1,"b":2}}`, `"b" is there twice`, true},
		{"unknown", `{"nmae":"a"}`, `no field "nmae"`, true},
		{"two-values", `{}{}`, "more than one", false},
		{"deep", strings.Repeat("[", 100), "deeper", false},
		{"cut", `{"name":`, "not JSON", false},
		{"empty", "", "not JSON", false},
		{"wrong-type", `{"n":"hunter2"}`, `"n" can't be a JSON string`, false},
		{"fraction", `{"n":31.337}`, `"n" has to be a whole number`, false},
		{"array", `[]`, "it can't be a JSON array", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v value
			err := strict.Unmarshal([]byte(tt.text), &v)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Unmarshal = %v, want %q", err, tt.want)
			}
			if _, ok := errors.AsType[*strict.Error](err); err != nil && !ok {
				t.Errorf("Unmarshal = %T, want a *strict.Error", err)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "31.337")) {
				t.Errorf("the error repeats a value: %v", err)
			}
			if got := json.Unmarshal([]byte(tt.text), &value{}) == nil; tt.want != "" && got != tt.taken {
				t.Errorf("encoding/json takes it: %t, want %t", got, tt.taken)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{`{"name":"a","n":1,"in":{"scopes":["x"]}}`, `{"NAME":1}`, `{"ſcopes":[]}`, `[[[`, `null`, "\x00", `{"raw":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v value
		if err := strict.Unmarshal(b, &v); err != nil {
			return
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(b, &exact); err != nil {
			t.Fatalf("what was taken is no JSON object: %v", err)
		}
		for name := range exact {
			switch name {
			case "name", "n", "in", "raw", "any", "raws", "Plain", "scopes":
			default:
				t.Errorf("it took %q", name)
			}
		}
	})
}
