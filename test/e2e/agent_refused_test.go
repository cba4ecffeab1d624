package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
)

// refusedAgents are programs that ask their model once, and end with 7 where it does not
// answer.
var refusedAgents = []struct{ name, key, host, status, ask string }{
	{"claude", "ANTHROPIC_API_KEY", fakemodel.Anthropic, "refused ANTHROPIC_API_KEY (status 401)", `-H "X-Api-Key: $ANTHROPIC_API_KEY" https://api.anthropic.com/v1/messages`},
	{"codex", "OPENAI_API_KEY", fakemodel.OpenAI, "refused OPENAI_API_KEY (status 401)", `-H "Authorization: Bearer $OPENAI_API_KEY" https://api.openai.com/v1/responses`},
	{
		"gemini", "GEMINI_API_KEY", fakemodel.Gemini, "refused all that came with GEMINI_API_KEY (status 400)",
		`-H "X-Goog-Api-Key: $GEMINI_API_KEY" https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent`,
	},
}

// TestAgentKeyRefused has each model refuse a key as its API does: one line says so, the
// exit code is the program's, and nothing is said of a key that is good.
func TestAgentKeyRefused(t *testing.T) {
	t.Parallel()
	const good = "a_key_that_the_model_takes_0123456789"
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		w.sites(worldA, fakemodel.NewServer(good).Handlers())
		h := w.home()
		repo := agentWorld(t, h)
		for _, a := range refusedAgents {
			script := "#!/bin/sh\n[ \"$1\" = login ] && exit\ncurl -fsS -o /dev/null -X POST -d '{}' " + a.ask + " || exit 7\n"
			h.edit(h.dir, map[string]string{"tools/" + a.name: script})
			must(t, os.Chmod(h.dir+"/tools/"+a.name, 0o755))
			for key, code := range map[string]int{good: 0, "a_key_that_it_does_not_take_0123456789": 7} {
				env := h.env
				h.env = append(h.env, a.key+"="+key)
				r := h.run(nil, "agent", "run", "--isolation", wall, "--workspace", repo, "--name", a.name, a.name)
				h.env = env
				line := "\ncarboy: " + a.host + " " + a.status
				if r.code != code || strings.Count(r.stderr, line) != code/7 {
					t.Errorf("%s: exit code %d, want %d\n%s%s", a.name, r.code, code, r.stdout, r.stderr)
				}
				if strings.Contains(r.stdout+r.stderr, key) {
					t.Errorf("%s: the key is told", a.name)
				}
				h.ok("rm", "-f", a.name)
			}
		}
	})
}
