package agents

import (
	"strings"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
)

// agent is a program, as its user meets it.
type agent struct {
	name string
	host string // whose model it asks
	// headless are the arguments for one prompt without a terminal.
	headless func(prompt string) []string
	// interactive are those for a terminal.
	interactive []string
	ready       string // stands on the screen when a prompt may be typed
	ways        []way
}

// way is how its user is known to the model.
type way struct {
	name     string
	variable string // has the credential; "" where files have it
	key      string
	host     string // where it is not the agent's
	files    map[string]string
}

const (
	anthropicKey = "sk-ant-api03-R3alKeyOfAFakeModelThatNeverEnters0123456789AA"
	claudeToken  = "sk-ant-oat01-R3alTokenOfASubscriptionThatNeverEnters0123456789AA"
	openAIKey    = "sk-proj-R3alKeyOfAFakeModelThatNeverEnters0123456789"
	geminiKey    = "AIzaSyR3alKeyOfAFakeModelNeverEnters012"
	// A login's token is a JSON web token, whose end is far away.
	chatGPTToken = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDAsImlzcyI6ImEgZmFrZSJ9.UjNhbFRva2VuVGhhdE5ldmVyRW50ZXJz"
	chatGPTID    = "eyJhbGciOiJub25lIn0.eyJlbWFpbCI6InBlcnNvbkBleGFtcGxlLmNvbSIsImV4cCI6NDEwMjQ0NDgwMCwiaHR0cHM6Ly9hcGkub3BlbmFpLmNvbS9hdXRoIjp7ImNoYXRncHRfcGxhbl90eXBlIjoicGx1cyIsImNoYXRncHRfYWNjb3VudF9pZCI6IjAwMDAwMDAwLTAwMDAtNDAwMC04MDAwLTAwMDAwMDAwMDAwMCJ9fQ.c2ln"
	chatGPTLogin = `{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "last_refresh": "2100-01-01T00:00:00Z", "tokens": {` +
		`"id_token": "` + chatGPTID + `", "access_token": "` + chatGPTToken + `", "refresh_token": "R3fr3shTokenThatNeverEnters0123456789", ` +
		`"account_id": "00000000-0000-4000-8000-000000000000"}}`
)

var agents = []agent{
	{
		name: "claude", host: fakemodel.Anthropic, ready: "❯",
		headless: func(prompt string) []string { return []string{"-p", prompt} },
		ways: []way{
			{name: "key", variable: "ANTHROPIC_API_KEY", key: anthropicKey},
			{name: "subscription", variable: "CLAUDE_CODE_OAUTH_TOKEN", key: claudeToken},
		},
	},
	{
		name: "codex", host: fakemodel.OpenAI, ready: "Ask Codex",
		headless: func(prompt string) []string { return []string{"exec", "--skip-git-repo-check", prompt} },
		ways: []way{
			{name: "key", variable: "OPENAI_API_KEY", key: openAIKey},
			{name: "subscription", key: chatGPTToken, host: fakemodel.ChatGPT, files: map[string]string{"home/.codex/auth.json": chatGPTLogin}},
		},
	},
	{
		name: "gemini", host: fakemodel.Gemini, ready: "Type your message",
		headless: func(prompt string) []string { return []string{"-p", prompt} },
		ways:     []way{{name: "key", variable: "GEMINI_API_KEY", key: geminiKey}},
	},
	{
		name: "opencode", host: fakemodel.Anthropic, ready: "Ask anything",
		headless:    func(prompt string) []string { return []string{"run", "-m", "anthropic/claude-sonnet-4-5", prompt} },
		interactive: []string{"-m", "anthropic/claude-sonnet-4-5"},
		ways:        []way{{name: "key", variable: "ANTHROPIC_API_KEY", key: anthropicKey}},
	},
}

// What the fakes do after a prompt.
const (
	fixPrompt  = "please fix the greeting"
	holdPrompt = "please hold on"
	answered   = "All of it is done, said the fake."
	firstHalf  = "This is the first half."
	otherHalf  = "And this is the other."
)

var scripts = []fakemodel.Script{
	{Prompt: fixPrompt, Steps: []fakemodel.Step{
		{Read: "/workspace/greet.txt"},
		{Edit: &fakemodel.Edit{Path: "/workspace/greet.txt", Old: "helo world", New: "hello world"}},
		{Run: "cd /workspace && cp greet.txt out.txt && echo ran-42"},
		{Run: "env"},
		{Hold: answered},
	}},
	{Prompt: holdPrompt, Steps: []fakemodel.Step{{Hold: firstHalf + "\n\n" + otherHalf}}},
}

// variables are those of the user who is known in that way.
func (w *way) variables() (env []string) {
	if w.variable != "" {
		env = append(env, w.variable+"="+w.key)
	}
	return env
}

// model is the host that is asked.
func (a *agent) model(w *way) string {
	if w.host != "" {
		return w.host
	}
	return a.host
}

// placeholderOf is the placeholder that a text holds.
func placeholderOf(text string) string {
	_, rest, found := strings.Cut(text, "carboy_secret_")
	if !found {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' })
	if end < 0 {
		end = len(rest)
	}
	return "carboy_secret_" + rest[:end]
}

// agent is the command line for one, behind a wall.
func (p *place) agent(a *agent, wall string, args []string) []string {
	return append([]string{a.name, "--isolation", wall, "--"}, args...)
}
