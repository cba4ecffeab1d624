package policy

import (
	"slices"
	"strings"
	"sync"
)

// Preset is a set of rules under a name.
type Preset struct {
	Name    string `json:"name"`
	Summary string `json:"summary"` // one line, lower case
	Rules   []Rule `json:"rules"`
}

// Presets lists those that there are, in the order of their names. The caller
// may change what it gets.
func Presets() []Preset {
	out := slices.Clone(presets())
	for i := range out {
		out[i].Rules = cloneRules(out[i].Rules)
	}
	return out
}

func presetByName(name string) (Preset, bool) {
	i := slices.IndexFunc(presets(), func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return presets()[i], true
}

func presetNames() string {
	names := make([]string, len(presets()))
	for i := range presets() {
		names[i] = presets()[i].Name
	}
	return strings.Join(names, ", ")
}

// presets open what a tool needs, and no bare host: methods and paths as
// narrow as the tool's protocol lets them be. In the order of their names.
var presets = sync.OnceValue(func() []Preset {
	return slices.SortedFunc(slices.Values(slices.Concat(models(), forges(), registries())), func(a, b Preset) int {
		return strings.Compare(a.Name, b.Name)
	})
})

// models are APIs of language models, for inference: nothing is uploaded that
// stays, nobody is billed for training, no key is made or listed.
func models() []Preset {
	return []Preset{
		{
			Name:    "anthropic",
			Summary: "Anthropic's API, for inference; ANTHROPIC_API_KEY is put in if the sandbox was given it",
			Rules: []Rule{{
				ID: "anthropic", Hosts: []string{"api.anthropic.com"}, Ports: https,
				Matches: []Match{
					{Methods: []string{"POST"}, Paths: exactly("/v1/messages", "/v1/messages/count_tokens", "/v1/complete")},
					{Methods: read, Paths: below("/v1/models")},
				},
				Secrets:      []Secret{{Name: "ANTHROPIC_API_KEY", Header: "X-Api-Key", Optional: true}},
				Placeholders: PlaceholdersPass,
			}},
		},
		{
			Name:    "openai",
			Summary: "OpenAI's API, for inference; OPENAI_API_KEY is put in if the sandbox was given it",
			Rules: []Rule{{
				ID: "openai", Hosts: []string{"api.openai.com"}, Ports: https,
				Matches: []Match{
					{Methods: []string{"POST"}, Paths: exactly(
						"/v1/responses", "/v1/responses/input_tokens", "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
						"/v1/moderations", "/v1/images/generations", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations")},
					{Methods: []string{"POST"}, Paths: like(`/v1/responses/[A-Za-z0-9_-]+/cancel`)},
					// Codex speaks the same over a WebSocket. Nothing but the upgrade is let through:
					// a plain GET would list.
					{Methods: []string{"GET"}, Paths: exactly("/v1/responses"), Headers: []Field{{Name: "Upgrade", Type: "regex", Value: "(?i)websocket"}}},
					{Methods: read, Paths: like(`/v1/models(/[A-Za-z0-9._:-]+)?`, `/v1/responses/[A-Za-z0-9_-]+(/input_items)?`)},
				},
				Secrets:      []Secret{{Name: "OPENAI_API_KEY", Header: "Authorization", Scheme: "Bearer", Optional: true}},
				Placeholders: PlaceholdersPass,
			}},
		},
		{
			Name:    "gemini",
			Summary: "Google's Gemini API, for inference; GEMINI_API_KEY is put in if the sandbox was given it",
			Rules: []Rule{{
				ID: "gemini", Hosts: []string{"generativelanguage.googleapis.com"}, Ports: https,
				Matches: []Match{
					{Methods: []string{"POST"}, Paths: like(
						`/v1(alpha|beta)?/models/[A-Za-z0-9._-]+:(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|predict)`)},
					{Methods: []string{"POST"}, Paths: exactly("/v1beta/openai/chat/completions", "/v1beta/openai/embeddings")},
					{Methods: read, Paths: below("/v1/models", "/v1alpha/models", "/v1beta/models", "/v1beta/openai/models")},
				},
				Secrets:      []Secret{{Name: "GEMINI_API_KEY", Header: "X-Goog-Api-Key", Optional: true}},
				Placeholders: PlaceholdersPass,
			}},
		},
	}
}

// forges are open for fetching. What a repository's owner could be robbed or
// flooded by (pushes, issues, gists, GraphQL, LFS uploads) is not.
func forges() []Preset {
	return []Preset{{
		Name:    "github",
		Summary: "GitHub, for fetching: git over HTTPS, archives, raw files, releases and reads of the API; GITHUB_TOKEN is put in if the sandbox was given it",
		Rules: []Rule{
			{
				ID: "github/git", Hosts: []string{"github.com"}, Ports: https,
				Matches: []Match{
					{Methods: []string{"GET"}, Paths: like(`/[^/]+/[^/]+/info/refs`), Query: []Field{{Name: "service", Value: "git-upload-pack"}}},
					{Methods: []string{"POST"}, Paths: like(`/[^/]+/[^/]+/git-upload-pack`)},
				},
				Secrets: []Secret{{Name: "GITHUB_TOKEN", Header: "Authorization", Scheme: "Basic", Username: basicUser, Optional: true}},
			},
			{
				ID: "github/files", Hosts: []string{"github.com"}, Ports: https,
				Matches: []Match{{Methods: read, Paths: like(`/[^/]+/[^/]+/(archive|raw|tarball|zipball|releases/download|releases/latest)(/.*)?`)}},
			},
			{
				ID: "github/api", Hosts: []string{"api.github.com"}, Ports: https,
				Matches: []Match{{Methods: read}},
				Secrets: []Secret{{Name: "GITHUB_TOKEN", Header: "Authorization", Scheme: "Bearer", Optional: true}},
			},
			{
				ID: "github/content", Ports: https,
				Hosts: []string{
					"codeload.github.com", "raw.githubusercontent.com", "media.githubusercontent.com",
					"objects.githubusercontent.com", "release-assets.githubusercontent.com", "github-releases.githubusercontent.com",
				},
				Matches: []Match{{Methods: read}},
			},
		},
	}}
}

// read is what takes without giving.
var read = []string{"GET", "HEAD"}

var https = []string{"443"}

func like(regexes ...string) []Value { return values(matchRegex, regexes) }

// PresetOf returns the name of the preset that has a rule about that very host, "" for
// none.
func PresetOf(host string) string {
	for _, p := range presets() {
		for _, r := range p.Rules {
			if slices.Contains(r.Hosts, host) {
				return p.Name
			}
		}
	}
	return ""
}

func exactly(paths ...string) []Value { return values(MatchExact, paths) }

func below(paths ...string) []Value { return values(matchPrefix, paths) }

func values(t MatchType, texts []string) []Value {
	out := make([]Value, len(texts))
	for i, s := range texts {
		out[i] = Value{Type: t, Value: s}
	}
	return out
}
