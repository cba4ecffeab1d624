package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakeProvider knows the agent below as a user's own file would.
const fakeProvider = `
title = "Fake"
about = "an agent of tests"
program = "fakeagent"
[config]
dir = ".fake"
keep = ["{{.Config}}"]
[run]
bypass = ["--yolo"]
resume = ["--continue"]
prompt_mode = "append_file"
prompt = ["--rules", "{{.PromptFile}}"]
[env]
FAKE_HOME = "{{.Config}}"
[access]
hint = "set FAKE_KEY"
[[access.way]]
name = "key"
reaches = "fake"
[[access.way.rule]]
id = "model"
hosts = ["model.test"]
ports = ["443"]
matches = [{methods = ["POST"], paths = [{type = "exact", value = "/v1/talk"}]}]
placeholders = "pass"
[[access.way.secret]]
name = "FAKE_KEY"
header = "X-Api-Key"
[reach]
quiet = ["telemetry.test"]
[[dir]]
path = "{{.Config}}"
mode = "0700"
error = "fake's home can't be made"
[[pre_copy]]
argv = ["find", "{{.Config}}", "-name", "*.lock", "-delete"]
error = "fake's locks can't be removed"
[[file]]
path = "{{.Config}}/state.json"
mode = "0600"
merge = true
error = "fake's state can't be written"
content = '''{"approved": {{.Secret "FAKE_KEY" | last 20 | json}}, "trusted": {{json .Dir}}}'''
[[verify]]
argv = ["{{.Program}}", "status"]
error = "fake does not take its credentials"
`

// fakeAgent asks its model, tells it all that it has, edits, commits, and ends with 3.
const fakeAgent = `#!/bin/sh
case "$1" in
status) [ -s "$FAKE_HOME/state.json" ] && [ ! -e "$FAKE_HOME/broken" ]; exit;;
esac
echo "args $*"
echo "dir $(pwd)"
echo "runs $(cat "$FAKE_HOME/runs" 2>/dev/null)"
echo x >>"$FAKE_HOME/runs"
grep -o '"approved"[^,}]*' "$FAKE_HOME/state.json"
env | curl -sS -X POST --data-binary @- -H "X-Api-Key: $FAKE_KEY" https://model.test/v1/talk
curl -sS -o /dev/null https://statsig.test/ https://telemetry.test/ 2>/dev/null
echo edited >a.txt
git add a.txt && git commit -q -m "by the agent"
mkdir -p ../.github/workflows && echo ci >../.github/workflows/ci.yml
exit 3
`

// agentWorld is a home with the agent, a repository and a model that answers with status.
func agentWorld(t *testing.T, h *home) (repo string) {
	t.Helper()
	h.edit(h.dir, map[string]string{
		"config/carboy/agents/fake.toml": fakeProvider, "tools/fakeagent": fakeAgent, "repo/sub/a.txt": "one\n", "repo/b.txt": "two\n",
		".gitconfig": "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n",
	})
	if err := os.Chmod(filepath.Join(h.dir, "tools/fakeagent"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, e := range h.env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			h.env[i] = "PATH=" + h.dir + "/tools:" + path
		}
	}
	repo = filepath.Join(h.dir, "repo")
	h.git(repo, "init", "-q", "-b", "fix")
	h.git(repo, "add", ".")
	h.git(repo, "commit", "-q", "-m", "one")
	return repo
}

// walled is crossed in a world with a model. Its tests run at the same time.
func walled(t *testing.T, model http.Handler, f func(t *testing.T, w *world, h *home, wall string)) {
	crossed(t, func(t *testing.T, wall, who string) {
		t.Parallel()
		w := newWorld(t)
		w.https("model.test", worldA, model)
		if who == "root" {
			f(t, w, w.home("FAKE_KEY="+realToken), wall)
		} else {
			f(t, w, w.ordinaryHome(carboy, "FAKE_KEY="+realToken), wall)
		}
	})
}

// TestAgent runs an agent in a repository: it is set up, its key stays outside while the
// conversation goes on, what it did is told, and it goes on where it was.
func TestAgent(t *testing.T) {
	t.Parallel()
	model := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the model's answer\n") })
	walled(t, model, func(t *testing.T, w *world, h *home, wall string) {
		repo := agentWorld(t, h)
		prompt := h.write("rules.md", "be brief\n")
		if err := os.Chmod(prompt, 0o644); err != nil {
			t.Fatal(err)
		}
		h.env = append(h.env, "HOME="+h.dir)
		r := h.run(nil, "agent", "run", "--name", "otter", "--isolation", wall, "--workspace", repo+"/sub", "--prompt-file", prompt, "fake", "--", "-p", "fix")
		if r.code != 3 {
			t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		agentTells(t, "stdout", r.stdout,
			`(?m)^args --yolo --rules /home/user/\.carboy-prompt\.md -p fix$`, `(?m)^dir /workspace/sub$`, `(?m)^runs $`,
			`(?m)^"approved":"[a-z0-9]{20}"$`, `(?m)^the model's answer$`)
		agentTells(t, "stderr", r.stderr,
			`(?m)^carboy: fake \(.*/tools/fakeagent\) · repo at /workspace, a copy · reaches fake · FAKE_KEY stays outside$`,
			`(?m)^carboy: fake ended \(3\) · 2 files changed, 1 held back \(\.github/workflows/ci\.yml\) · 1 commit on fix · refused: statsig\.test, telemetry\.test$`,
			`(?m)^carboy: next: carboy diff otter · carboy apply otter · .*carboy agent run --resume otter fake$`)
		reqs := w.received("model.test")
		if len(reqs) != 1 || reqs[0].Header.Get("X-Api-Key") != realToken || !strings.Contains(string(reqs[0].Body), "FAKE_KEY=carboy_secret_") || strings.Contains(string(reqs[0].Body), realToken) {
			t.Fatalf("the model received %+v", reqs)
		}
		// Searched for outside: a search inside would bring it there.
		if tree := h.run(nil, "exec", "otter", "--", "tar", "-cf", "-", "/home", "/tmp", "/workspace"); len(tree.stdout) < 1<<12 || strings.Contains(tree.stdout, realToken) {
			t.Errorf("of %d bytes of files some hold the key", len(tree.stdout))
		}
		if strings.HasSuffix(t.Name(), "-root") { // another's control groups are not where this looks
			noToken(t, h, "otter")
		}
		if got := h.git(repo, "status", "--porcelain"); got != "" {
			t.Errorf("the user's tree: %s", got)
		}
		if got := strings.TrimSpace(h.ok("exec", "--cwd", "/workspace", "otter", "--", "git", "log", "-1", "--format=%an <%ae> %s")); got != "Ann <ann@example.com> by the agent" {
			t.Errorf("the commit: %q", got)
		}
		h.ok("apply", "otter", "sub/a.txt")
		if b, _ := os.ReadFile(repo + "/sub/a.txt"); string(b) != "edited\n" {
			t.Errorf("applied: %q", b)
		}

		// It goes on, also where it was stopped; and a sandbox of tomorrow knows what was said.
		h.ok("stop", "otter")
		r = h.run(nil, "agent", "run", "--resume", "otter", "fake")
		if r.code != 3 {
			t.Fatalf("resumed: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		agentTells(t, "resumed", r.stdout, `(?m)^args --yolo --continue$`, `(?m)^dir /workspace/sub$`, `(?m)^runs x$`)
		agentTells(t, "resumed", r.stderr, `(?m)^carboy: fake ended \(3\).* · 1 commit on fix`)
		h.ok("rm", "-f", "otter")
		r = h.run(nil, "agent", "run", "--isolation", wall, "--workspace", repo, "--ask", "fake")
		agentTells(t, "the next", r.stdout, `(?m)^args $`, `(?m)^dir /workspace$`, `(?m)^runs x$`, `(?m)^x$`)
	})
}

// TestAgentMistakes holds what is said where it can't run, and that nothing is left then.
func TestAgentMistakes(t *testing.T) {
	t.Parallel()
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		w.https("model.test", worldA, refuses)
		h := w.home()
		repo := agentWorld(t, h)
		run := func(flags ...string) result {
			return h.run(nil, append(append([]string{"agent", "run", "--isolation", wall, "--workspace", repo}, flags...), "fake")...)
		}
		r := run()
		agentEnds(t, r, 125, `(?m)^carboy: no key for fake: set FAKE_KEY$`)
		h.env = append(h.env, "FAKE_KEY="+realToken)

		// A set-up that fails is undone.
		h.edit(h.dir, map[string]string{"tools/fakeagent": strings.Replace(fakeAgent, "exit;;", "echo 'no such login' >&2; exit 1;;", 1)})
		must(t, os.Chmod(h.dir+"/tools/fakeagent", 0o755))
		agentEnds(t, run(), 125, `(?m)^carboy: fake does not take its credentials: exit code 1: no such login$`)

		// So is one whose program can't be started.
		must(t, os.WriteFile(h.dir+"/tools/fakeagent", []byte("#!/no/such/program\n"), 0o755))
		h.edit(h.dir, map[string]string{"config/carboy/agents/fake.toml": strings.Split(fakeProvider, "[[verify]]")[0]})
		agentEnds(t, run(), 127, `(?m)^carboy: /home/user/.local/bin/fakeagent: its interpreter is missing$`)

		must(t, os.Remove(h.dir+"/tools/fakeagent"))
		agentEnds(t, run(), 125, `(?m)^carboy: no program fakeagent on this machine$`)
		if left := h.list(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		if left := h.ok("volume", "ls"); strings.Contains(left, "home-") {
			t.Errorf("homes are left:\n%s", left)
		}

		// A key that the model does not take, and a repository without a commit.
		h.edit(h.dir, map[string]string{"tools/fakeagent": fakeAgent})
		must(t, os.Chmod(h.dir+"/tools/fakeagent", 0o755))
		must(t, os.RemoveAll(repo+"/.git"))
		h.git(repo, "init", "-q", "-b", "main")
		r = run("--name", "mouse")
		agentEnds(t, r, 3, `(?m)^carboy: model\.test refused FAKE_KEY \(status 401\): `)
		agentTells(t, "stderr", r.stderr, `(?m)^carboy: the repository has no commit yet`, ` · 1 commit on main`)

		// What an agent left in the place of a file that is written for it stops no other.
		h.ok("exec", "mouse", "--", "sh", "-c", "rm ~/.fake/state.json && mkdir ~/.fake/state.json")
		h.ok("rm", "-f", "mouse")
		r = run()
		agentEnds(t, r, 3, `(?m)^carboy: /home/user/\.fake/state\.json was no file any more: `)
		agentTells(t, "stdout", r.stdout, `(?m)^"approved":"[a-z0-9]{20}"$`)
		agentTells(t, "volume ls", h.ok("volume", "ls"), `home of fake for `+repo)
	})
}

func agentEnds(t *testing.T, r result, code int, want string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	agentTells(t, "stderr", r.stderr, want)
}

// agentTells looks for expressions in a text.
func agentTells(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: no %s in\n%s", what, want, text)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("prepare: %w", err))
	}
}
