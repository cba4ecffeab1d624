package manifest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/manifest"
)

// TestHome: no two agents share a home, though one is called as the other.
func TestHome(t *testing.T) {
	is := manifest.Plan{Bottle: "work", Origin: "user", Agent: "fixer", Provider: "claude"}
	others := map[string]manifest.Plan{"the agent itself": is}
	for name, change := range map[string]func(*manifest.Plan){
		"another bottle":   func(p *manifest.Plan) { p.Bottle = "plain" },
		"a repository's":   func(p *manifest.Plan) { p.Origin = "repository" },
		"another agent":    func(p *manifest.Plan) { p.Agent = "fixer2" },
		"another program":  func(p *manifest.Plan) { p.Provider = "codex" },
		"the longest name": func(p *manifest.Plan) { p.Agent = strings.Repeat("a", 40) },
	} {
		p := is
		change(&p)
		others[name] = p
	}
	seen := map[string]string{}
	for name, p := range others {
		home := p.Home()
		if before, ok := seen[home]; ok {
			t.Errorf("%s has the home of %s: %s", name, before, home)
		}
		seen[home] = name
		if !regexp.MustCompile(`^[a-z][a-zA-Z0-9_-]{0,31}$`).MatchString(home) {
			t.Errorf("%s: %q is no home's name", name, home)
		}
	}
	if again := is.Home(); seen[again] != "the agent itself" || !strings.HasPrefix(again, "fixer-") {
		t.Errorf("its home: %s", again)
	}
}
