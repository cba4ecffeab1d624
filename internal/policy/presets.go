package policy

import (
	"reflect"
	"slices"
	"strings"
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
	out := slices.Clone(presets)
	for i := range out {
		out[i].Rules = cloneRules(out[i].Rules)
	}
	return out
}

func presetByName(name string) (Preset, bool) {
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return presets[i], true
}

func presetNames() string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return strings.Join(names, ", ")
}

func sameRule(a, b Rule) bool { return reflect.DeepEqual(a, b) }

// presets open what a tool needs, and no bare host: methods and paths as
// narrow as the tool's protocol lets them be.
var presets = []Preset{
	{
		Name:    "anthropic",
		Summary: "Anthropic's API, for inference; ANTHROPIC_API_KEY is put in where the sandbox was given it",
		Rules: []Rule{{
			ID:    "anthropic",
			Hosts: []string{"api.anthropic.com"}, Ports: []string{"443"},
			Matches: []Match{
				{Methods: []string{"POST"}, Paths: exactly("/v1/messages", "/v1/messages/count_tokens", "/v1/complete")},
				{Methods: []string{"GET"}, Paths: below("/v1/models")},
			},
			Secrets: []Secret{{Name: "ANTHROPIC_API_KEY", Header: "X-Api-Key", Optional: true}},
		}},
	},
	{
		Name:    "gemini",
		Summary: "Google's Gemini API, for inference; GEMINI_API_KEY is put in where the sandbox was given it",
		Rules: []Rule{{
			ID:    "gemini",
			Hosts: []string{"generativelanguage.googleapis.com"}, Ports: []string{"443"},
			Matches: []Match{
				{Methods: []string{"POST"}, Paths: []Value{{
					Type: MatchRegex, Value: `/v1(beta)?/models/[A-Za-z0-9._-]+:(generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|predict)`,
				}}},
				{Methods: []string{"POST"}, Paths: exactly("/v1beta/openai/chat/completions", "/v1beta/openai/embeddings")},
				{Methods: []string{"GET"}, Paths: below("/v1/models", "/v1beta/models", "/v1beta/openai/models")},
			},
			Secrets: []Secret{{Name: "GEMINI_API_KEY", Header: "X-Goog-Api-Key", Optional: true}},
		}},
	},
}

func exactly(paths ...string) []Value { return values(MatchExact, paths) }

func below(paths ...string) []Value { return values(MatchPrefix, paths) }

func values(t MatchType, texts []string) []Value {
	out := make([]Value, len(texts))
	for i, s := range texts {
		out[i] = Value{Type: t, Value: s}
	}
	return out
}
