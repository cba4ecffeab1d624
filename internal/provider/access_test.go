package provider_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
)

func token(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte("{}")) + "." + enc([]byte(claims)) + "." + enc([]byte("sig"))
}

func TestGrant(t *testing.T) {
	login := func(exp int64) string {
		return fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":%q,"access_token":%q,"account_id":"acct-1"}}`,
			token(`{"https://api.openai.com/auth":{"chatgpt_plan_type":"pro"}}`), token(fmt.Sprintf(`{"exp":%d}`, exp)))
	}
	claude := func(ms int64) string {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat-real","expiresAt":%d}}`, ms)
	}
	const later, before = 4102444800, 1000000000
	tests := []struct {
		name, agent   string
		files, env    map[string]string
		given, stored []string
		want          []string // NAME from, in their order
		err           string
		facts         map[string]string
	}{
		{name: "none", agent: "claude", err: "no key for claude: set ANTHROPIC_API_KEY, "},
		{name: "key", agent: "claude", env: map[string]string{"ANTHROPIC_API_KEY": "k"}, want: []string{"ANTHROPIC_API_KEY $ANTHROPIC_API_KEY"}},
		{name: "empty", agent: "claude", env: map[string]string{"ANTHROPIC_API_KEY": ""}, err: "no key for claude"},
		{name: "given", agent: "claude", given: []string{"ANTHROPIC_API_KEY"}, want: []string{"ANTHROPIC_API_KEY --secret"}},
		{name: "kept", agent: "claude", stored: []string{"CLAUDE_CODE_OAUTH_TOKEN"}, want: []string{"CLAUDE_CODE_OAUTH_TOKEN carboy secret"}},
		{name: "token-first", agent: "claude", env: map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t"}, want: []string{"ANTHROPIC_AUTH_TOKEN $ANTHROPIC_AUTH_TOKEN"}},
		{name: "login", agent: "claude", files: map[string]string{".claude/.credentials.json": claude(later * 1000)}, want: []string{"CLAUDE_CODE_OAUTH_TOKEN HOME/.claude/.credentials.json"}},
		{name: "login-elsewhere", agent: "claude", env: map[string]string{"CLAUDE_CONFIG_DIR": "HOME/c"}, files: map[string]string{"c/.credentials.json": claude(later * 1000)}, want: []string{"CLAUDE_CODE_OAUTH_TOKEN HOME/c/.credentials.json"}},
		{name: "login-over", agent: "claude", files: map[string]string{".claude/.credentials.json": claude(before * 1000)}, err: "no key for claude: the login of HOME/.claude/.credentials.json was good until 2001-09-"},
		{name: "broken-login", agent: "claude", files: map[string]string{".claude/.credentials.json": "{"}, err: "no key for claude: set"},
		{
			name: "chatgpt", agent: "codex", files: map[string]string{".codex/auth.json": login(later)},
			want: []string{"CHATGPT_ACCESS_TOKEN HOME/.codex/auth.json"}, facts: map[string]string{"account": "acct-1", "plan": "pro"},
		},
		{name: "chatgpt-over", agent: "codex", files: map[string]string{".codex/auth.json": login(before)}, err: "no key for codex: the login of"},
		{name: "codex-key-file", agent: "codex", files: map[string]string{".codex/auth.json": `{"OPENAI_API_KEY":"sk-real"}`}, want: []string{"OPENAI_API_KEY HOME/.codex/auth.json"}},
		{name: "all", agent: "opencode", env: map[string]string{"ANTHROPIC_API_KEY": "k", "GOOGLE_GENERATIVE_AI_API_KEY": "g"}, want: []string{"ANTHROPIC_API_KEY $ANTHROPIC_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY $GOOGLE_GENERATIVE_AI_API_KEY"}},
		{name: "custom", agent: "custom"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := machine(t, tt.files)
			env := map[string]string{}
			for k, v := range tt.env {
				env[k] = strings.ReplaceAll(v, "HOME", home)
			}
			o := outside(home, env)
			o.Given, o.Stored = tt.given, tt.stored
			p, err := provider.Find("", tt.agent)
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.Grant(o)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(tt.err, "HOME", home)) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range g.Secrets {
				got = append(got, s.Name+" "+strings.ReplaceAll(s.From, home, "HOME"))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			for k, v := range tt.facts {
				if g.Facts[k] != v {
					t.Errorf("fact %s: %q, want %q", k, g.Facts[k], v)
				}
			}
			rules, err := g.Rules()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policy.Compile(*p.Base(rules), g.Names()); err != nil {
				t.Errorf("the policy: %v", err)
			}
		})
	}
}

// TestPolicyIsNarrow asks what the policies of the agents let through.
func TestPolicyIsNarrow(t *testing.T) {
	for _, tt := range []struct {
		agent, way, method, url string
		allowed                 bool
		header                  string
	}{
		{"claude", "key", "POST", "/v1/messages", true, "X-Api-Key"},
		{"claude", "subscription", "POST", "/v1/messages", true, "Authorization"},
		{"claude", "subscription", "POST", "/v1/files", false, ""},
		{"codex", "subscription", "POST", "/backend-api/codex/responses", true, "Authorization"},
		{"codex", "subscription", "GET", "/backend-api/wham/accounts/check", true, "Authorization"},
		{"codex", "subscription", "GET", "/backend-api/conversations", false, ""},
	} {
		p, err := provider.Find("", tt.agent)
		if err != nil {
			t.Fatal(err)
		}
		w := p.Access.Ways[slices.IndexFunc(p.Access.Ways, func(w provider.Way) bool { return w.Name == tt.way })]
		rules, err := w.Policy()
		if err != nil {
			t.Fatal(err)
		}
		var allowed bool
		var header string
		for _, r := range rules {
			for _, m := range r.Matches {
				if slices.Contains(m.Methods, tt.method) && slices.ContainsFunc(m.Paths, func(v policy.Value) bool { return v.Value == tt.url }) {
					allowed, header = true, r.Secrets[0].Header
				}
			}
			if r.Placeholders != policy.PlaceholdersPass {
				t.Errorf("%s %s: what the agent tells its model of its environment is refused", tt.agent, tt.way)
			}
		}
		if allowed != tt.allowed || header != tt.header {
			t.Errorf("%s %s: %s %s: allowed %t with %q, want %t with %q", tt.agent, tt.way, tt.method, tt.url, allowed, header, tt.allowed, tt.header)
		}
	}
}
