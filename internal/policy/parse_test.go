package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// everything has each field of the schema.
const everything = `
version: 1
default: public
presets: [pypi]
rules:
  - id: api
    action: allow
    hosts: [api.example.com, "*.example.org"]
    addresses: [10.0.0.5]
    ports: [443, "8000-8099"]
    protocol: http
    matches:
      - methods: [GET, post]
        paths:
          - {type: exact, value: /v1/a}
          - value: /v1/b
        headers:
          - {name: x-kind, value: one}
        query:
          - name: q
            type: RegularExpression
            value: "[a-z]+"
    secrets:
      - name: TOKEN
        header: authorization
        scheme: basic
        username: bot
      - {name: OTHER, query: key, optional: true}
      - {name: THIRD, body: /auth/key, optional: true}
    auth: guest
    limits:
      request_bytes: 1
      response_bytes: 2
      requests_per_minute: 3
      bytes: 4
  - action: deny
    hosts: [bad.example.com]
dns:
  types: [txt]
  upstreams: [192.0.2.53]
  queries_per_minute: 60
`

func TestParse(t *testing.T) {
	got, err := policy.Parse([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Policy{
		Version: 1, Default: "public", Presets: []string{"pypi"},
		Rules: []policy.Rule{{
			ID: "api", Action: "allow", Hosts: []string{"api.example.com", "*.example.org"}, Addresses: []string{"10.0.0.5"},
			Ports: []string{"443", "8000-8099"}, Protocol: "http",
			Matches: []policy.Match{{
				Methods: []string{"GET", "post"},
				Paths:   []policy.Value{{Type: "exact", Value: "/v1/a"}, {Value: "/v1/b"}},
				Headers: []policy.Field{{Name: "x-kind", Value: "one"}},
				Query:   []policy.Field{{Name: "q", Type: "RegularExpression", Value: "[a-z]+"}},
			}},
			Secrets: []policy.Secret{
				{Name: "TOKEN", Header: "authorization", Scheme: "basic", Username: "bot"},
				{Name: "OTHER", Query: "key", Optional: true},
				{Name: "THIRD", Body: "/auth/key", Optional: true},
			},
			Auth:   "guest",
			Limits: policy.Limits{RequestBytes: 1, ResponseBytes: 2, RequestsPerMinute: 3, Bytes: 4},
		}, {Action: "deny", Hosts: []string{"bad.example.com"}}},
		DNS: policy.DNS{Types: []string{"txt"}, Upstreams: []string{"192.0.2.53"}, QueriesPerMinute: 60},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	set := compile(t, got, "TOKEN")

	// What was compiled reads back as itself, and as JSON too.
	text, err := json.MarshalIndent(set.Policy(), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set.Policy(), compile(t, again, "TOKEN").Policy()); diff != "" {
		t.Error(diff)
	}
	r := set.Policy().Rules[0]
	if r.Matches[0].Methods[1] != "POST" || r.Matches[0].Query[0].Type != "regex" || r.Secrets[0].Header != "Authorization" || r.Secrets[0].Scheme != "Basic" {
		t.Errorf("not filled in: %+v", r)
	}
}

func TestParseRefuses(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nrules: [*b,*b,*b,*b]\n"
	tests := []struct {
		name, text string
		want       []string // one for each problem
	}{
		{"empty", "", []string{"is empty"}},
		{"blank", " \n# nothing\n", []string{"is empty"}},
		{"large", strings.Repeat(" ", policy.MaxSize+1), []string{"are the most"}},
		{"dashes-in-brackets", "[" + strings.Repeat("- ", 30000), []string{"nested deeper than any policy is"}},
		{"keys-of-old", strings.Repeat("a: b\r", 10000), []string{"more keys or items than any policy has"}},
		{"quotes-and-tabs", strings.Repeat("\"\t", 30000), []string{"more keys or items than any policy has"}},
		{"not-utf8", "rules: [\xff]", []string{"not UTF-8"}},
		{"syntax", "rules: [\n", []string{"neither YAML nor JSON"}},
		{"text", "hello", []string{"line 1: a text where something else is wanted"}},
		{"list", "- a\n", []string{"line 1: a list where"}},
		{"unknown", "rules:\n- hosts: [a.example]\n  port: [443]\n", []string{`line 3: "port" in rules[0] is not of the schema`}},
		{"case", "Rules: []\n", []string{`line 1: "Rules" is not of the schema`}},
		{"several", "verion: 1\nrules:\n- host: a.example\n  hosts: a.example\n", []string{`"verion" is not`, `"host" in rules[0]`, "line 4: rules[0].hosts"}},
		{"duplicate", "rules: []\nrules: []\n", []string{"line 2: rules is there twice"}},
		{"duplicate-json", `{"rules": [], "rules": []}`, []string{"line 1: rules is there twice"}},
		{"duplicate-inner", "{\"rules\": [\n{\"hosts\": [\"a.example\"],\n\"hosts\": [\"b.example\"]}]}", []string{"line 3: rules[0].hosts is there twice"}},
		{"type", "version: one\n", []string{"line 1: version: \"one\" where"}},
		{"float", "version: 1.5\n", []string{"whole number"}},
		{"octal", "version: 01\n", []string{"whole number"}},
		{"huge", "version: 99999999999999999999999\n", []string{"whole number"}},
		{"bool-as-text", "rules: [{hosts: [on.example, true]}]\n", []string{`rules[0].hosts[1]: "true" where`}},
		{"hex-port", "rules: [{hosts: [a.example], ports: [0x50]}]\n", []string{`rules[0].ports[0]: "0x50"`}},
		{"null", "rules:\n", []string{"line 1: rules: nothing where"}},
		{"two-documents", "rules: []\n---\nrules: []\n", []string{"a second document"}},
		{"anchor", "rules: &a []\n", []string{"anchors"}},
		{"bomb", bomb, []string{"anchors"}},
		{"merge", "<<: {default: public}\n", []string{"plain text"}},
		{"tag", "default: !!str public\n", []string{"tags"}},
		{"deep", "rules: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), []string{"nested deeper"}},
		{"deep-json", `{"rules": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", []string{"nested deeper"}},
		{"deep-dashes", strings.Repeat("- ", 10000) + "a", []string{"nested deeper"}},
		{"keys", strings.Repeat("a: 1\n", 300), []string{"line 257: more keys or items"}},
		{"keys-asked", "a:\n" + strings.Repeat("  ? a\n", 300), []string{"line 258: more keys"}},
		{"keys-flow", "{" + strings.Repeat("a: 1, ", 300) + "}", []string{"line 1: more keys"}},
		{"keys-flow-lines", "{" + strings.Repeat("a\n,", 300) + "}", []string{"line 258: more keys"}},
		{"items", "rules:\n" + strings.Repeat("- a\n", 20001), []string{"line 20002: more keys or items"}},
		{"deep-block", deepBlock(200), []string{"nested deeper"}},
		{"escape", "\"\\e[31m\": 1\n", []string{"a field is not of the schema"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := policy.Parse([]byte(tt.text))
			if err == nil {
				t.Fatalf("got %+v", got)
			}
			all := policy.Problems(err)
			if len(all) != len(tt.want) {
				t.Errorf("got %d problems: %v", len(all), err)
			}
			for i, want := range tt.want {
				if i < len(all) && !strings.Contains(all[i].Error(), want) {
					t.Errorf("got %q, want %q", all[i], want)
				}
			}
			if _, ok := errors.AsType[*policy.Error](err); !ok {
				t.Errorf("got %T", err)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("raw escape in %q", err)
			}
		})
	}
}

func deepBlock(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// What is no policy may be anybody's: nothing of it is repeated.
func TestParseRepeatsNothing(t *testing.T) {
	for name, text := range map[string]string{
		"shadow":   "root:$y$canary:19000:0:99999:7:::\ndaemon:*:19000::::::\n",
		"ini":      "[default]\naws_secret_access_key = canary\n",
		"env":      "TOKEN=canary\n",
		"yaml":     "password: canary\ncanary: 1\n",
		"broken":   "password: canary\n  canary: [\n\t'canary\n",
		"key":      "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n",
		"json":     `{"canary": "canary"}`,
		"twice":    "canary: 1\ncanary: 2\n",
		"number":   "4711",
		"netplan":  "network:\n  canary: canary\n  canary: canary\n",
		"anchored": "canary: &canary canary\n",
		"unquoted": "canary: 'canary' canary\n",
		"mapped":   "canary: canary: canary\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Parse([]byte(text))
			_, _, imported := policy.FromSandboxRuntime([]byte(text))
			for _, err := range []error{err, imported} {
				if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "4711") {
					t.Errorf("got %v, want an error without its text", err)
				}
			}
		})
	}
}
