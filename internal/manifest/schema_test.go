package manifest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carboy-sandbox/carboy/internal/manifest"
)

// everything has each key that there is.
const everything = `{
	"bottles": {
		"base": {},
		"b": {
			"extends": ["base"], "isolation": "process", "stronger": ["gvisor"], "image": "a", "user": "root", "read_only_root": true,
			"network": "policy", "secrets": ["T"], "env": {"A": "b"}, "caches": ["npm"],
			"limits": {"cpus": 1.5, "memory": "1g", "pids": 5, "disk": 1073741824, "inodes": 1000},
			"policy": {
				"version": 1, "default": "deny", "presets": ["npm"], "services": ["docs"], "ask": {"timeout": "60s"},
				"dns": {"types": ["TXT"], "upstreams": ["192.0.2.1"], "queries_per_minute": 5},
				"rules": [{
					"id": "a", "action": "ask", "hosts": ["a.example"], "addresses": ["10.0.0.1"], "ports": ["443"], "protocol": "http", "placeholders": "pass",
					"matches": [{"methods": ["GET"], "paths": [{"type": "exact", "value": "/"}], "headers": [{"name": "X-A", "value": "b"}], "query": [{"name": "q", "value": "c"}]}],
					"secrets": [{"name": "T", "header": "Authorization", "scheme": "Basic", "username": "u", "optional": true}],
					"limits": {"request_bytes": 1, "response_bytes": 2, "requests_per_minute": 3, "bytes": 4}
				}]
			},
			"remotes": {"r": {"url": "ssh://git@h/r.git", "key": {"provider": "static", "path": "/k"}, "known_host_key": "",
				"push": {"read_only": true, "protected": ["refs/heads/main"], "deletions": "ask", "forced": "ask", "secrets": "ask", "held": "ask",
					"binaries": "ask", "unscannable": "ask", "max_blob": "1m", "max_push": 1, "max_commits": 1, "max_refs": 1}}},
			"supervise": true, "git_user": {"name": "n", "email": "e@x"}
		},
		"t": {"template": "x"}
	},
	"agents": {"a": {
		"bottle": "b", "provider": "codex", "prompt": "p", "skills": ["s"], "git_user": {"name": "n"},
		"files": [{"path": "~/f", "content": "c", "mode": "0600"}], "policy": {"presets": ["npm"], "dns": {"types": ["TXT"], "upstreams": ["192.0.2.1"], "queries_per_minute": 5}}
	}}
}`

// TestSchemaAgrees: what is read is what the schema describes, and what is refused for its
// shape the schema refuses.
func TestSchemaAgrees(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(manifest.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{everything, true},
		{`{}`, true},
		{`{"bottles": {"b": {"extends": "x"}}}`, true},
		{`{"bottle": {}}`, false},
		{`{"bottles": {"b": {"imag": "x"}}}`, false},
		{`{"bottles": {"b": {"image": null}}}`, false},
		{`{"bottles": {"b": {"policy": {"rules": [{"host": []}]}}}}`, false},
		{`{"bottles": {"b": {"supervise": "yes"}}}`, false},
		{`{"bottles": {"B_1": {}}}`, false},
		{`{"bottles": {"b": {"network": "public"}}}`, false},
		{`{"agents": {"a": {"remotes": {}}}}`, false},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.text), &v); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(v); (err == nil) != c.ok {
			t.Errorf("%.60s: the schema says %v", c.text, err)
		}
		_, err := manifest.FromJSON("manifest.json", []byte(c.text), "")
		if c.ok && err != nil && c.text != `{"bottles": {"b": {"extends": "x"}}}` || !c.ok && err == nil {
			t.Errorf("%.60s: read with %v", c.text, err)
		}
	}
}

// TestEverythingIsRead: no key is taken and dropped.
func TestEverythingIsRead(t *testing.T) {
	x, err := manifest.FromJSON("manifest.json", []byte(everything), "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := x.Manifest("a")
	if err != nil {
		t.Fatal(err)
	}
	m.Bottle.Template = "the other of image" // each excludes the other
	m.Bottle.Policy.Rules[0].Auth, m.Bottle.Policy.Rules[0].Roots = "x", "x"
	m.Bottle.Policy.Rules[0].Matches[0].Headers[0].Type, m.Bottle.Policy.Rules[0].Matches[0].Query[0].Type = "x", "x"
	s := &m.Bottle.Policy.Rules[0].Secrets[0]
	s.Query, s.Body, s.Ask = "x", "x", true
	for i := range m.Bottle.Remotes {
		r := m.Bottle.Remotes[i]
		r.KnownHostKey, r.Key.Name, r.Key.Username = "x", "x", "x"
		m.Bottle.Remotes[i] = r
	}
	m.Agent.Policy.Version, m.Agent.Policy.Default, m.Agent.Policy.Rules = 1, "x", m.Bottle.Policy.Rules
	m.Agent.Policy.Services, m.Agent.Policy.Ask = m.Bottle.Policy.Services, m.Bottle.Policy.Ask
	for what, v := range map[string]any{"bottle": m.Bottle, "agent": m.Agent} {
		for _, path := range empty(reflect.ValueOf(v), what) {
			t.Errorf("%s was not read", path)
		}
	}
}

// empty lists what is zero in a value.
func empty(v reflect.Value, path string) (paths []string) {
	if v.IsZero() {
		return []string{path}
	}
	switch v.Kind() { //nolint:exhaustive // the others hold nothing
	case reflect.Pointer:
		return empty(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			paths = append(paths, empty(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			paths = append(paths, empty(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			paths = append(paths, empty(v.MapIndex(k), fmt.Sprintf("%s[%s]", path, k))...)
		}
	}
	return paths
}
