package fakemodel

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const key = "a-key-of-a-fake-model"

var script = Script{Prompt: "fix it", Steps: []Step{
	{Read: "/w/a"}, {Edit: &Edit{"/w/a", "x", "y"}}, {Run: "make"}, {Say: "it is fixed"},
}}

// TestSteps has each API offer the tools of a client, and wants the step that the
// conversation has come to, by that client's names.
func TestSteps(t *testing.T) {
	anthropic := func(results int) string {
		messages := `{"role":"user","content":[{"type":"text","text":"fix it"}]}`
		for i := range results {
			messages += fmt.Sprintf(`,{"role":"assistant","content":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"%d","content":"done"},{"type":"text","text":"a reminder"}]}`, i)
		}
		return `{"model":"m","stream":true,"tools":[{"name":"Read"},{"name":"Edit"},{"name":"Bash"}],"messages":[` + messages + `]}`
	}
	responses := func(results int) string {
		input := `{"type":"additional_tools","tools":[{"type":"namespace","name":"functions","tools":[{"type":"custom","name":"exec"}]}]},{"role":"user","content":[{"type":"input_text","text":"fix it"}]}`
		for i := range results { // and each says something twice
			one := fmt.Sprintf(`,{"type":"custom_tool_call_output","call_id":"%d","output":"done"}`, i)
			input += one + one
		}
		return `{"model":"m","stream":true,"input":[` + input + `]}`
	}
	completions := func(results int) string {
		messages := `{"role":"user","content":"fix it"}` + strings.Repeat(`,{"role":"tool","content":"done"}`, results)
		return `{"model":"m","stream":true,"tools":[{"function":{"name":"read"}},{"function":{"name":"edit"}},{"function":{"name":"bash"}}],"messages":[` + messages + `]}`
	}
	gemini := func(results int) string {
		contents := `{"role":"user","parts":[{"text":"fix it"}]}` + strings.Repeat(`,{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"done"}}}]}`, results)
		return `{"tools":[{"functionDeclarations":[{"name":"read_file"},{"name":"replace"},{"name":"run_shell_command"}]}],"contents":[` + contents + `]}`
	}
	tests := []struct {
		name, host, path string
		body             func(results int) string
		want             [4]string
	}{
		{"anthropic", Anthropic, "/v1/messages", anthropic, [4]string{`"name":"Read"`, `"name":"Edit"`, `"name":"Bash"`, "it is"}},
		{"responses", OpenAI, "/v1/responses", responses, [4]string{`cat '/w/a'`, `tools.apply_patch(`, `make`, `it is fixed`}},
		{"chatgpt", ChatGPT, "/backend-api/codex/responses", responses, [4]string{`cat '/w/a'`, `tools.apply_patch(`, `make`, `it is fixed`}},
		{"completions", OpenAI, "/v1/chat/completions", completions, [4]string{`"name":"read"`, `"name":"edit"`, `"name":"bash"`, `it is fixed`}},
		{"gemini", Gemini, "/v1beta/models/m:streamGenerateContent?alt=sse", gemini, [4]string{`"name":"read_file"`, `"name":"replace"`, `"name":"run_shell_command"`, "it is"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewServer(key, script)
			for step, want := range tt.want {
				w := ask(s, tt.host, tt.path, key, tt.body(step))
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
					t.Errorf("step %d: %d, want %s in\n%s", step, w.Code, want, w.Body)
				}
			}
			if got := s.Requests(tt.host); len(got) != 4 || got[3].Credential != key || got[3].Status != http.StatusOK {
				t.Errorf("received %d requests", len(got))
			}
		})
	}
}

// TestPromptWithin wants words about a prompt to be none.
func TestPromptWithin(t *testing.T) {
	s := NewServer(key, script)
	w := ask(s, Anthropic, "/v1/messages", key, `{"tools":[{"name":"Read"}],"messages":[{"role":"user","content":"a title of: fix it"}]}`)
	if !strings.Contains(w.Body.String(), "no script is about that") {
		t.Errorf("%s", w.Body)
	}
}

// TestKeyIsWanted has each API refuse another credential, as it does.
func TestKeyIsWanted(t *testing.T) {
	for host, want := range map[string]string{
		Anthropic: "authentication_error", OpenAI: "invalid_api_key", ChatGPT: "invalid_api_key", Gemini: "API_KEY_INVALID",
	} {
		s := NewServer(key)
		if w := ask(s, host, "/", "another", ""); w.Code < 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}

// TestHold wants the second half of a turn when it is released, and not before.
func TestHold(t *testing.T) {
	s := NewServer(key, Script{Prompt: "hold", Steps: []Step{{Hold: "first\nother"}}})
	web := httptest.NewServer(s.Handlers()[Anthropic])
	defer web.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/v1/messages",
		strings.NewReader(`{"stream":true,"tools":[{"name":"Read"}],"messages":[{"role":"user","content":"hold"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seen := ""
	for buf := make([]byte, 1); !strings.Contains(seen, "first"); {
		if _, err := resp.Body.Read(buf); err != nil {
			t.Fatal(err)
		}
		seen += string(buf)
	}
	s.Release()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "other") || strings.Contains(seen, "other") {
		t.Errorf("%v: %q, then %q", err, seen, rest)
	}
}

func ask(s *Server, host, path, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "https://"+host+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	s.Handlers()[host].ServeHTTP(w, r)
	return w
}
