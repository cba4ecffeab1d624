package manifest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/manifest"
)

// seeded is the plan of the agent demo in the bottle dev, said as one JSON object.
func seeded(t *testing.T, bottle map[string]any) *manifest.Plan {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"bottles": map[string]any{"dev": bottle},
		"agents":  map[string]any{"demo": map[string]any{"skills": []string{}, "prompt": "", "bottle": "dev"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x, err := manifest.FromJSON("manifest.json", b, "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := x.Manifest("demo")
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan("demo-abc12")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gitGate(repos, user map[string]any) map[string]any {
	gate := map[string]any{}
	if repos != nil {
		gate["repos"] = repos
	}
	if user != nil {
		gate["user"] = user
	}
	return map[string]any{"git-gate": gate}
}

var oneRepo = map[string]any{"bot-bottle": map[string]any{
	"url": "ssh://git@host/repo.git", "key": map[string]any{"provider": "static", "path": "~/.ssh/id_ed25519"},
}}

// gitCalls are the arguments of what is run to configure git, each with its user.
func gitCalls(p *manifest.Plan) (calls []string) {
	for _, s := range p.Steps {
		if len(s.Argv) > 0 {
			calls = append(calls, s.User+": "+strings.Join(s.Argv, " "))
		}
	}
	return calls
}

func TestProvisionGit(t *testing.T) {
	t.Run("noop_when_no_cwd_and_no_git_entries", func(t *testing.T) {
		p := seeded(t, map[string]any{})
		if p.GitConfig("http://127.0.0.1:9418") != "" || len(gitCalls(p)) != 0 || slices.Contains(p.Services, manifest.ServiceGit) {
			t.Errorf("%+v", p)
		}
	})
	t.Run("writes_gitconfig_with_ip_port_form_for_smolmachines", func(t *testing.T) {
		got := seeded(t, gitGate(oneRepo, nil)).GitConfig("http://127.0.0.1:9418")
		for _, want := range []string{`[url "http://127.0.0.1:9418/bot-bottle.git"]`, "\tinsteadOf = ssh://git@host/repo.git"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
	})
}

func TestBundleLaunchSpec(t *testing.T) {
	t.Run("git_gate_uses_http_daemon_for_smolmachines", func(t *testing.T) {
		p := seeded(t, gitGate(oneRepo, nil))
		if !slices.Equal(p.Services, []string{manifest.ServiceGit}) {
			t.Errorf("services %q", p.Services)
		}
		r := p.Remotes[0]
		if r.Name != "bot-bottle" || r.URL != "ssh://git@host/repo.git" || r.Host != "host" || r.Port != "22" || r.KnownHostKey != "" || r.Forwards {
			t.Errorf("%+v", r)
		}
		if !strings.Contains(p.Text(), "refuses to forward") {
			t.Error("a host that is not known is not told of")
		}
		supervised := gitGate(oneRepo, nil)
		supervised["supervise"] = true
		if got := seeded(t, supervised).Services; !slices.Equal(got, []string{manifest.ServiceGit, manifest.ServiceSupervise}) {
			t.Errorf("supervised: %q", got)
		}
	})
}

func TestProvisionGitUser(t *testing.T) {
	for _, c := range []struct {
		name string
		user map[string]any
		want []string
	}{
		{"noop_when_no_git_user", nil, nil},
		{"sets_name_and_email_as_node", map[string]any{"name": "Eric Bauerfeld", "email": "eric@dideric.is"}, []string{
			"user: git config --global user.name Eric Bauerfeld", "user: git config --global user.email eric@dideric.is",
		}},
		{"name_only", map[string]any{"name": "Bot"}, []string{"user: git config --global user.name Bot"}},
		{"email_only", map[string]any{"email": "bot@example.com"}, []string{"user: git config --global user.email bot@example.com"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := gitCalls(seeded(t, gitGate(nil, c.user))); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestKeyIsStatic: the provider of a key that says none.
func TestKeyIsStatic(t *testing.T) {
	p := seeded(t, gitGate(map[string]any{"a": map[string]any{"url": "git@host:repo.git", "key": map[string]any{"path": "/k"}}}, nil))
	if r := p.Remotes[0]; r.Key.Provider != "static" || r.Host != "host" || r.User != "git" {
		t.Errorf("%+v", r)
	}
}
