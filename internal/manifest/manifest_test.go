package manifest_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/manifest"
)

var update = flag.Bool("update", false, "write the files that are compared with")

// config writes files below a directory of configuration, by their names in it.
func config(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// planOf resolves one agent of a configuration.
func planOf(t *testing.T, s manifest.Sources, agent string) (*manifest.Manifest, *manifest.Plan) {
	t.Helper()
	x, err := manifest.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	m, err := x.Manifest(agent)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(agent + "-abc12")
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

const (
	base = `---
isolation: gvisor
limits: {cpus: 2, memory: 4g}
policy:
  presets: [anthropic]
  rules:
    - id: docs
      hosts: ["*.docs.example"]
secrets: [ANTHROPIC_API_KEY]
env: {LANG: C.UTF-8}
git_user: {name: Base, email: base@example.com}
---
What every bottle has.
`
	dev = `---
extends: base
image: node:22
limits: {memory: 8g}
remotes:
  app:
    url: ssh://git@git.example/app.git
    key: {path: ~/.ssh/id_ed25519}
    known_host_key: ""
supervise: true
git_user: {name: Dev}
---
`
	demo = `---
bottle: dev
skills: [review]
git_user: {email: demo@example.com}
files:
  - {path: ~/notes.md, content: "hello"}
---

Fix the tests.
Then rest.
`
)

func whole(t *testing.T) string {
	t.Helper()
	return config(t, map[string]string{"bottles/base.md": base, "bottles/dev.md": dev, "agents/demo.md": demo, "agents/mine.toml": "title = \"not a bottle's\""})
}

func TestPlan(t *testing.T) {
	dir := whole(t)
	m, p := planOf(t, manifest.Sources{Config: dir}, "demo")
	if m.Bottle.Isolation != "gvisor" || m.Bottle.Image != "node:22" || m.Bottle.User != "user" || m.Bottle.Limits.Memory != 8<<30 || m.Bottle.Limits.PIDs != 1024 || !*m.Bottle.Supervise {
		t.Errorf("resolved: %+v", m.Bottle)
	}
	if m.Agent.Provider != "claude" || m.Agent.GitUser != (manifest.GitUser{Name: "Dev", Email: "demo@example.com"}) || m.Agent.Files[0].Mode != "0644" || m.Agent.Prompt != "Fix the tests.\nThen rest.\n" {
		t.Errorf("resolved: %+v", m.Agent)
	}
	if got := strings.Join(p.Services, ","); got != "git,supervise" {
		t.Errorf("services %q", got)
	}
	if r := p.Remotes[0]; r.Host != "git.example" || r.Port != "22" || r.User != "git" || r.Forwards || r.Key.Provider != "static" {
		t.Errorf("remote %+v", r)
	}
	if req := p.Request(); req.Env["LANG"] != "C.UTF-8" || req.Limits.PIDs != 0 || req.Limits.Memory != 8<<30 || req.Secrets[0].Name != "ANTHROPIC_API_KEY" || req.Secrets[0].Value != nil || req.Network != "policy" {
		t.Errorf("request %+v", req)
	}
	text := strings.ReplaceAll(p.Text(), dir, "CONFIG")
	golden(t, "plan.txt", text)
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json", strings.ReplaceAll(string(b), dir, "CONFIG")+"\n")
	if strings.Contains(string(b)+text, "C.UTF-8") {
		t.Error("a variable's value is told")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func TestSlug(t *testing.T) {
	dir := whole(t)
	x, err := manifest.Load(manifest.Sources{Config: dir})
	if err != nil {
		t.Fatal(err)
	}
	m, err := x.Manifest("demo")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 50 {
		slug := manifest.NewSlug("demo")
		if _, err := m.Plan(slug); err != nil {
			t.Error(err)
		}
		seen[slug] = true
	}
	if len(seen) < 49 {
		t.Errorf("%d of 50 differ", len(seen))
	}
	for _, slug := range []string{"", "demo", "demo-abc1", "demo-ABC12", "other-abc12", "demo-abc123"} {
		if _, err := m.Plan(slug); err == nil {
			t.Errorf("%q is taken", slug)
		}
	}
}

// TestExtends: each base counts once, later ones win, and lists are put together.
func TestExtends(t *testing.T) {
	dir := config(t, map[string]string{
		"bottles/root.json": `{"policy": {"rules": [{"id": "root", "hosts": ["root.example"]}]}, "env": {"A": "1", "B": "1"}, "image": "one", "isolation": "process", "stronger": ["gvisor"]}`,
		"bottles/left.md":   "---\nextends: root\npolicy: {presets: [npm], default: deny}\nenv: {B: left}\n---\n",
		"bottles/right.md":  "---\nextends: [root]\npolicy: {presets: [npm, go]}\ntemplate: two\n---\n",
		"bottles/top.md":    "---\nextends: [left, right]\nisolation: gvisor\n---\n",
		"agents/a.json":     `{"bottle": "top", "provider": "codex", "prompt": "hi"}`,
	})
	m, p := planOf(t, manifest.Sources{Config: dir}, "a")
	if got := p.Request().Env; got["A"] != "1" || got["B"] != "left" {
		t.Errorf("env %v", got)
	}
	if m.Bottle.Image != "" || m.Bottle.Template != "two" || m.Bottle.Isolation != "gvisor" || len(m.Bottle.Stronger) != 0 {
		t.Errorf("%+v", m.Bottle)
	}
	if got := strings.Join(p.Create.Policy.Presets, ","); got != "npm,go" || len(p.Create.Policy.Rules) != 1 {
		t.Errorf("policy %+v", p.Create.Policy)
	}
	if m.Agent.Provider != "codex" || p.Prompt != "hi" {
		t.Errorf("%+v", m.Agent)
	}
}

// TestRepository: what a repository ships runs in a bottle of the user's, within what that
// allows, and takes nothing's place.
func TestRepository(t *testing.T) {
	dir, repo := whole(t), t.TempDir()
	write(t, repo, map[string]string{
		".carboy/agents/demo.md":      "---\nbottle: base\n---\n",
		".carboy/agents/reader.md":    "---\nbottle: base\npolicy:\n  rules: [{hosts: [a.docs.example], matches: [{methods: [GET]}]}]\n---\nRead.\n",
		".carboy/agents/README":       "no agent",
		".carboy/bottles/wide.md":     "---\nnetwork: on\n---\n",
		".carboy/agents/sub/other.md": "---\nbottle: base\n---\n",
	})
	x, err := manifest.Load(manifest.Sources{Config: dir, Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Agents(); !slices.Equal(got, []string{"demo", "reader"}) {
		t.Errorf("agents %v", got)
	}
	if len(x.Notes) != 2 || !strings.Contains(x.Notes[0], "bottles come from your own configuration alone") || !strings.Contains(x.Notes[1], "not taken: your own agent demo is in") {
		t.Errorf("notes %q", x.Notes)
	}
	_, p := planOf(t, manifest.Sources{Config: dir, Repository: repo}, "reader")
	if p.Origin != "repository" || len(p.Create.Secrets) != 0 || len(p.Create.Policy.Rules) != 1 {
		t.Errorf("%+v", p.Create)
	}
	if _, p := planOf(t, manifest.Sources{Config: dir, Repository: repo}, "demo"); p.Origin != "user" || p.Bottle != "dev" {
		t.Errorf("a repository's agent takes the place of the user's: %+v", p)
	}
	write(t, repo, map[string]string{".carboy/agents/wide.md": "---\nbottle: base\npolicy:\n  rules:\n    - hosts: [evil.example]\n---\n"})
	_, err = manifest.Load(manifest.Sources{Config: dir, Repository: repo})
	want := filepath.Join(repo, ".carboy/agents/wide.md") + ":5:7: policy.rules[0]: no rule of the bottle base allows all that rule-1 does"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
