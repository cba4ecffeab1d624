package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
)

// seedManifest is one object with a bottle and an agent, as the seed has it.
func seedManifest(gate, supervise string) string {
	return `{"bottles": {"dev": {"git-gate": ` + gate + supervise + `}}, "agents": {"demo": {"skills": [], "prompt": "", "bottle": "dev", "provider": "custom"}}}`
}

// upWorld is a home with a repository, as TestAgent's, whose agents run behind wall.
func upWorld(t *testing.T, h *home, wall string) (repo string) {
	t.Helper()
	repo = agentWorld(t, h)
	h.env = append(h.env, "HOME="+h.dir)
	h.edit(h.dir, map[string]string{
		"config/carboy/bottles/walled.md": "---\nisolation: " + wall + "\n---\n",
		"config/carboy/agents/screen.md":  "---\nbottle: walled\nprovider: screen\n---\n",
		"config/carboy/agents/screen.toml": `
title = "Screen"
about = "a shell script with a screen"
program = "screenagent"
[access]
none = true
`,
		"tools/screenagent": "#!/bin/bash\n" + turn + "\n",
	})
	must(t, os.Chmod(h.dir+"/tools/screenagent", 0o755))
	must(t, filepath.WalkDir(h.dir+"/config", func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(p, 0o644)
		}
		return err
	}))
	return repo
}

// inRepo runs carboy in a directory.
func (h *home) inRepo(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return h.run(nil, append([]string{args[0], "--workspace", dir}, args[1:]...)...)
}

// TestUpGitUser: the agent's git has what the bottle says, name first, by one call for each field, and
// nothing is called where there is nothing.
func TestUpGitUser(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		for _, tt := range []struct{ name, user, want, steps string }{
			{"both", `{"name": "Eric Bauerfeld", "email": "eric@dideric.is"}`, "user.name=Eric Bauerfeld\nuser.email=eric@dideric.is\n", "user.name,user.email"},
			{"name-only", `{"name": "Bot"}`, "user.name=Bot\n", "user.name"},
			{"email-only", `{"email": "bot@example.com"}`, "user.email=bot@example.com\n", "user.email"},
			{"none", `{}`, "", ""},
		} {
			h.edit(h.dir, map[string]string{"config/carboy/manifest.json": strings.Replace(seedManifest(`{"user": `+tt.user+`}`, ""), `{"git-gate"`, `{"isolation": "`+wall+`", "git-gate"`, 1), "empty/x": "x\n"})
			r := h.inRepo(t, h.dir+"/empty", "up", "demo", "--", "git", "config", "--global", "-l")
			got := ""
			for line := range strings.Lines(r.stdout) {
				if strings.HasPrefix(line, "user.") {
					got += line
				}
			}
			if got != tt.want {
				t.Errorf("%s: exit code %d, git has %q, want %q\n%s", tt.name, r.code, got, tt.want, r.stderr)
			}
			name := strings.TrimSpace(h.ok("ls", "-q"))
			var steps []string
			for _, m := range regexp.MustCompile(`(?m) setup +git: (\S+) `).FindAllStringSubmatch(h.ok("logs", name), -1) {
				steps = append(steps, m[1])
			}
			if strings.Join(steps, ",") != tt.steps {
				t.Errorf("%s: steps %q, want %s", tt.name, steps, tt.steps)
			}
			if out := h.ok("ls"); !strings.Contains(out, "  demo  ") {
				t.Errorf("ls names no agent:\n%s", out)
			}
			h.ok("rm", "-f", name)
		}
	})
}

// TestUpOfRepository: that an agent is the repository's is said as it begins, and one of the user's by its name
// goes before it.
func TestUpOfRepository(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.env = append(h.env, "HOME="+h.dir)
	h.edit(h.dir, map[string]string{
		"config/carboy/bottles/plain.md": "---\nisolation: process\n---\n",
		"repo/.carboy/agents/reader.md":  "---\nbottle: plain\nprovider: custom\n---\n",
	})
	up := func(want string) {
		t.Helper()
		said, code := shellIn(t, h, h.dir+"/repo", "git init -q . && carboy up reader -- true")
		if code != 0 || !strings.Contains(said, want) {
			t.Errorf("exit code %d, no %q in\n%s", code, want, said)
		}
	}
	up("reader, the repository's, in plain: custom")
	h.edit(h.dir, map[string]string{"config/carboy/agents/reader.md": "---\nbottle: plain\nprovider: custom\n---\n"})
	up("reader in plain: custom")
}

// TestUpPlan: the seed's object plans, what can't be done yet is refused by its name before anything
// is made, and the same in Markdown is the same plan.
func TestUpPlan(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	gate := `{"repos": {"app": {"url": "ssh://git@host/repo.git", "key": {"provider": "static", "path": "~/.ssh/id_ed25519"}}}, "user": {"name": "Bot"}}`
	h.edit(h.dir, map[string]string{"config/carboy/manifest.json": seedManifest(gate, `, "supervise": true`)})
	h.ok("manifest", "check")
	plan := h.ok("up", "demo", "--plan", "--json")
	if show := h.ok("manifest", "show", "--json", "demo"); show != plan {
		t.Errorf("up --plan and manifest show differ:\n%s\n%s", plan, show)
	}
	if r := h.run(nil, "up", "demo", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "the bottle dev is supervised, and ") {
		t.Errorf("%+v", r)
	}
	h.edit(h.dir, map[string]string{"config/carboy/manifest.json": seedManifest(gate, "")})
	h.edit(h.dir, map[string]string{"empty/x": "x\n"})
	if r := h.run(nil, "up", "--workspace", h.dir+"/empty", "demo", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "remote app: its key: ") || !strings.Contains(r.stderr, "/.ssh/id_ed25519") {
		t.Errorf("%+v", r)
	}
	h.edit(h.dir, map[string]string{"config/carboy/manifest.json": `{"bottles": {"dev": {"secrets": ["NO_SUCH"], "policy": {"rules": [{"hosts": ["a.example"], "secrets": [{"name": "NO_SUCH", "header": "X"}]}]}}}, "agents": {"demo": {"bottle": "dev", "provider": "custom"}}}`})
	if r := h.run(nil, "up", "demo", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "the bottle dev has the secret NO_SUCH: none of that name is kept") {
		t.Errorf("%+v", r)
	}
	if left := h.list(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	must(t, os.Remove(h.dir+"/config/carboy/manifest.json"))
	h.edit(h.dir, map[string]string{
		"config/carboy/bottles/dev.md": "---\nremotes:\n  app:\n    url: ssh://git@host/repo.git\n    key: {provider: static, path: ~/.ssh/id_ed25519}\ngit_user: {name: Bot}\nsupervise: true\n---\n",
		"config/carboy/agents/demo.md": "---\nbottle: dev\nprovider: custom\n---\n",
	})
	if a, b := withoutPlaces(t, plan), withoutPlaces(t, h.ok("up", "demo", "--plan", "--json")); a != b {
		t.Errorf("Markdown plans otherwise:\n%s\n%s", a, b)
	}
}

// withoutPlaces is a plan without where its lines were said.
func withoutPlaces(t *testing.T, plan string) string {
	t.Helper()
	var p map[string]any
	must(t, json.Unmarshal([]byte(plan), &p))
	delete(p, "digest")
	for _, l := range p["lines"].([]any) {
		delete(l.(map[string]any), "at")
	}
	b, err := json.Marshal(p)
	must(t, err)
	return string(b)
}

// TestUpFails: where a step fails its own words are said, the exit code is 125, and what there was before
// is all there is.
func TestUpFails(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := agentWorld(t, h)
		h.env = append(h.env, "HOME="+h.dir, "FAKE_KEY="+realToken)
		provider := strings.Replace(fakeProvider, "[[access.way]]", "none = true\n[[access.way]]", 1)
		provider = strings.Replace(provider, `"approved": {{.Secret "FAKE_KEY" | last 20 | json}}, `, "", 1)
		good := map[string]string{
			"config/carboy/agents/fake.toml":  provider,
			"config/carboy/bottles/walled.md": "---\nisolation: " + wall + "\ngit_user: {name: Bot}\n---\n",
			"config/carboy/agents/fixer.md":   "---\nbottle: walled\nprovider: fake\nfiles: [{path: ~/notes.md, content: x}]\n---\nBe brief.\n",
		}
		for _, tt := range []struct{ name, file, old, new, want string }{
			{"git", "config/carboy/bottles/walled.md", "git_user", "env: {GIT_CONFIG_GLOBAL: /nowhere/x}\ngit_user", "git's user.name can't be set: exit code "},
			{"skill", "config/carboy/agents/fixer.md", "files:", "skills: [nosuch]\nfiles:", "fake takes no skills"},
			{"write", "config/carboy/agents/fixer.md", "~/notes.md", "~/.carboy-prompt.md/x", "~/.carboy-prompt.md/x can't be written: "},
			{"dir", "config/carboy/agents/fake.toml", "path = \"{{.Config}}\"\nmode", "path = \"/proc/x\"\nmode", "fake's home can't be made: exit code 1: "},
			{"pre-copy", "config/carboy/agents/fake.toml", `argv = ["find"`, `argv = ["false"`, "fake's locks can't be removed: exit code 1"},
			{"lost", "config/carboy/agents/fake.toml", `argv = ["find", `, `argv = ["sh", "-c", "kill -9 $$", `, "fake's locks can't be removed: exit code 137"},
			{"file", "config/carboy/agents/fake.toml", "{{.Config}}/state.json", "/proc/x/state.json", "fake's state can't be written: "},
			{"verify", "config/carboy/agents/fake.toml", `["{{.Program}}", "status"]`, `["sh", "-c", "echo 'no such login' >&2; exit 1"]`, "fake does not take its credentials: exit code 1: no such login"},
		} {
			h.edit(h.dir, good)
			h.edit(h.dir, map[string]string{tt.file: strings.Replace(good[tt.file], tt.old, tt.new, 1)})
			before := h.everything(t)
			r := h.inRepo(t, repo, "up", "fixer")
			if r.code != 125 || !strings.Contains(r.stderr, tt.want) {
				t.Errorf("%s: exit code %d, no %q in\n%s", tt.name, r.code, tt.want, r.stderr)
			}
			if after := h.everything(t); after != before {
				t.Errorf("%s: before:\n%s\nafter:\n%s", tt.name, before, after)
			}
		}
		h.edit(h.dir, good)
		if r := h.inRepo(t, repo, "up", "fixer", "--", "-p", "x"); !strings.Contains(r.stdout, "args --yolo --rules /home/user/.carboy-prompt.md -p x\n") {
			t.Errorf("with nothing amiss: %+v", r)
		}
	})
}

// everything is what carboy has of sandboxes, homes, instances and mounts.
func (h *home) everything(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var ours []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.dir) {
			ours = append(ours, line)
		}
	}
	instances, err := filepath.Glob(h.dir + "/state/carboy/*/*/*")
	must(t, err)
	kept := instances[:0]
	for _, p := range instances {
		if strings.Contains(p, "/boxes/") || strings.Contains(p, "/gates/") {
			kept = append(kept, p)
		}
	}
	return h.ok("ls", "-q") + h.ok("volume", "ls", "--json") + strings.Join(kept, "\n") + strings.Join(ours, "")
}

// TestUpScreen: the terminal of an agent is closed in the middle, and the daemon killed: another
// terminal shows its screen, and goes on with it to its exit code. --resume joins it as well.
func TestUpScreen(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		first := h.sit(t, 91, 33, "up", "--workspace", repo, "screen")
		first.shows("the turn")
		first.types("one\n")
		first.shows("count-1-one")
		first.tty.Close() // as a window that is closed: SIGHUP
		_ = first.cmd.Wait()
		name := strings.TrimSpace(h.ok("ls", "-q"))

		second := h.sit(t, 80, 24, "attach", name)
		second.shows("the turn", "count-1-one")
		h.killDaemon()
		second.types("two\n")
		second.shows("count-2-two")
		_ = second.cmd.Process.Signal(syscall.SIGKILL)
		_ = second.cmd.Wait()
		h.killDaemon()

		third := h.sit(t, 91, 33, "up", "--resume", name)
		third.shows("the turn", "count-2-two")
		third.types("end\n")
		if code := third.code(); code != 7 {
			t.Errorf("the agent's end: %d", code)
		}
		h.ok("rm", "-f", name)

		// Left from its start, it is joined as any other.
		name = strings.TrimSpace(h.inRepo(t, repo, "up", "--detach", "screen").stdout)
		fourth := h.sit(t, 80, 24, "attach", name)
		fourth.shows("the turn")
		fourth.types("end\n")
		if code := fourth.code(); code != 7 {
			t.Errorf("the end of one that was left: %d", code)
		}
		h.ok("rm", "-f", name)
	})
}

// TestUpLines: what carboy says of an agent stays on the terminal above what the agent writes, Ctrl-Z
// leaves it running, and whoever sees its end hears what it did and how to go on.
func TestUpLines(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		h.edit(h.dir, map[string]string{"config/carboy/agents/asker.md": "---\nbottle: walled\nprovider: custom\n---\n"})
		const asks = `echo ready; read -r x; echo "got-$x"; exit 3`
		first := h.sit(t, 100, 30, "up", "--workspace", repo, "asker", "--", "sh", "-c", "trap 'echo resized' WINCH; "+asks)
		first.shows("asker in walled: custom", "ready")
		first.types("\x1a")
		first.types("word\n")
		first.shows("asker in walled: custom", "got-word", "custom ended (3)", "carboy up --resume asker-")
		if code := first.code(); code != 3 || strings.Contains(first.text(), "resized") {
			t.Errorf("the agent's end: %d\n%s", code, first.text())
		}
		h.ok("rm", "-f", strings.TrimSpace(h.ok("ls", "-q")))

		name := strings.TrimSpace(h.inRepo(t, repo, "up", "-d", "asker", "--", "sh", "-c", asks).stdout)
		second := h.sit(t, 100, 30, "attach", name)
		second.types("other\n")
		second.shows("got-other", "custom ended (3)", "carboy up --resume "+name)
		if code := second.code(); code != 3 {
			t.Errorf("the end of one that was joined: %d", code)
		}
		h.ok("stop", name)
		for _, state := range []string{"stopped", "running"} {
			if r := h.run(nil, "attach", name); r.code != 125 || !strings.Contains(r.stderr, "hint: carboy up --resume "+name+"\n") {
				t.Errorf("attach to one that is %s: %+v", state, r)
			}
			h.ok("start", name)
		}
	})
}

// TestUpHomes: what an agent leaves in its home is there for its next sandbox, and for no other agent.
func TestUpHomes(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		h.edit(h.dir, map[string]string{
			"config/carboy/agents/one.md":      "---\nbottle: walled\nprovider: keeper\n---\n",
			"config/carboy/agents/other.md":    "---\nbottle: walled\nprovider: keeper\n---\n",
			"config/carboy/agents/keeper.toml": "title = \"Keeper\"\nabout = \"keeps notes\"\nprogram = \"keeper\"\n[access]\nnone = true\n[config]\ndir = \"~/.notes\"\nkeep = [\"~/.notes\"]\n",
			"tools/keeper":                     "#!/bin/sh\ncat ~/.notes/* 2>/dev/null; echo \"left by $1\" >>~/.notes/all\n",
		})
		must(t, os.Chmod(h.dir+"/tools/keeper", 0o755))
		for _, tt := range []struct{ agent, want string }{
			{"one", ""}, {"other", ""}, {"one", "left by one\n"}, {"other", "left by other\n"},
		} {
			if r := h.inRepo(t, repo, "up", tt.agent, "--", tt.agent); r.code != 0 || r.stdout != tt.want {
				t.Errorf("%s found %q, want %q: %s", tt.agent, r.stdout, tt.want, r.stderr)
			}
			h.ok("rm", "-f", strings.TrimSpace(h.ok("ls", "-q")))
		}
	})
}

// screenAfter makes the agent screen be ready only after a time in seconds.
func (h *home) screenAfter(seconds int) {
	h.edit(h.dir, map[string]string{"config/carboy/agents/screen.toml": fmt.Sprintf(`
title = "Screen"
about = "one that takes a while"
program = "screenagent"
[access]
none = true
[[verify]]
argv = ["sleep", "%d"]
error = "it is not ready"
`, seconds)})
}

// TestUpKilled: a client and a daemon that are killed while an agent is set up leave nothing of it.
func TestUpKilled(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		h.screenAfter(50)
		for who, kill := range map[string]func(s *seat){
			"client": func(s *seat) { _ = s.cmd.Process.Signal(syscall.SIGKILL); _ = s.cmd.Wait() },
			"daemon": func(s *seat) { h.killDaemon(); _ = s.cmd.Process.Signal(syscall.SIGKILL); _ = s.cmd.Wait() },
		} {
			s := h.sit(t, 120, 24, "up", "--workspace", repo, "screen")
			s.shows("setting up: verify")
			kill(s)
			until(t, func() bool { return h.ok("ls", "-q") == "" })
			if left := h.everything(t); strings.Contains(left, "/boxes/") && strings.Contains(left, "screen") {
				t.Errorf("%s: left:\n%s", who, left)
			}
		}
	})
}

// TestUpUnwanted: who stops or removes a sandbox does not wait for its set-up, and who interrupts one
// that would be left running has nothing of it.
func TestUpUnwanted(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		h.screenAfter(50)
		before := h.everything(t)
		for how, tt := range map[string]struct {
			args []string
			end  func(s *seat, name string)
			code int
			want string
		}{
			"removed": {nil, func(_ *seat, name string) { h.ok("rm", "-f", name) }, 125, "it was removed while it was set up"},
			"stopped": {nil, func(_ *seat, name string) {
				if r := h.run(nil, "stop", name); r.code != 125 || !strings.Contains(r.stderr, "it was still being set up, and is gone") {
					t.Errorf("stop: %+v", r)
				}
			}, 125, "it was stopped while it was set up"},
			"interrupted": {[]string{"-d"}, func(s *seat, _ string) { _ = s.cmd.Process.Signal(syscall.SIGINT) }, 130, ""},
			"left":        {[]string{"-d"}, func(_ *seat, name string) { h.ok("rm", "-f", name) }, 125, "it was removed while it was set up"},
		} {
			s := h.sit(t, 160, 24, append([]string{"up", "--workspace", repo, "screen"}, tt.args...)...)
			s.shows("setting up: verify")
			tt.end(s, strings.TrimSpace(h.ok("ls", "-q")))
			if code := s.code(); code != tt.code || !strings.Contains(s.text(), tt.want) {
				t.Errorf("%s: %d, want %d\n%s", how, code, tt.code, s.text())
			}
			if left := h.everything(t); left != before {
				t.Errorf("%s: left:\n%s\nbefore:\n%s", how, left, before)
			}
		}
	})
}

// TestUpRemotes: git inside asks what stands for a remote, and its user's own configuration stays.
func TestUpRemotes(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		h.create("--name", "web", "--isolation", wall)
		h.ok("exec", "web", "--", "git", "config", "--global", "alias.st", "status")
		svc := h.api()
		defer svc.Close()
		set := &api.SetUp{
			Agent: api.Agent{Provider: "x", Program: []string{}, Dir: "/"}, Definition: "title = 'x'\nabout = 'x'\n[access]\nnone = true\n",
			GitConfig: "[url \"http://127.0.0.1:9418/bot-bottle.git\"]\n\tinsteadOf = ssh://git@host/repo.git\n",
		}
		for range 2 { // the second leads to the same
			if _, err := svc.SetUp(t.Context(), "web", set, func(api.CreateEvent) {}); err != nil {
				t.Fatal(err)
			}
		}
		got := h.ok("exec", "web", "--", "git", "config", "--global", "-l", "--includes")
		if strings.Count(got, "url.http://127.0.0.1:9418/bot-bottle.git.insteadof=ssh://git@host/repo.git\n") != 1 || !strings.Contains(got, "alias.st=status\n") {
			t.Errorf("git has %q", got)
		}
		if r := h.run(nil, "exec", "web", "--", "git", "ls-remote", "ssh://git@host/repo.git"); !strings.Contains(r.stderr, "http://127.0.0.1:9418/bot-bottle.git") {
			t.Errorf("it asks another: %+v", r)
		}
	})
}

// TestUpGoesOn: who has an agent left running may leave before it is set up.
func TestUpGoesOn(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		repo := upWorld(t, h, wall)
		h.screenAfter(3)
		first := h.sit(t, 120, 24, "up", "-d", "--workspace", repo, "screen")
		first.shows("setting up: verify")
		_ = first.cmd.Process.Signal(syscall.SIGKILL)
		_ = first.cmd.Wait()
		name := strings.TrimSpace(h.ok("ls", "-q"))
		until(t, func() bool { return strings.Contains(h.ok("logs", name), "start: screen") })
		second := h.sit(t, 80, 24, "attach", name)
		second.shows("the turn")
		second.types("end\n")
		if code := second.code(); code != 7 {
			t.Errorf("the agent's end: %d", code)
		}
		h.ok("rm", "-f", name)

		// One that can't be started leaves nothing.
		h.screenAfter(0)
		h.edit(h.dir, map[string]string{"tools/screenagent": "#!/no/such/program\n"})
		must(t, os.Chmod(h.dir+"/tools/screenagent", 0o755))
		r := h.inRepo(t, repo, "up", "-d", "screen")
		if r.code != 125 || !strings.Contains(r.stderr, "screen can't be started: ") {
			t.Errorf("%+v", r)
		}
		if left := h.ok("ls", "-q"); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// TestInit finds what is installed, writes for it what can be run, and overwrites nothing.
func TestInit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.env = append(h.env, "HOME="+h.dir)
	if r := h.run(nil, "init"); r.code != 125 || !strings.Contains(r.stderr, "no coding agent is installed here") {
		t.Errorf("%+v", r)
	}
	h.edit(h.dir, map[string]string{".local/bin/claude": "#!/bin/sh\necho 2.1.0\n", ".local/bin/aider": "#!/bin/sh\n"})
	must(t, os.Chmod(h.dir+"/.local/bin/claude", 0o755))
	must(t, os.Chmod(h.dir+"/.local/bin/aider", 0o755))
	h.edit(h.dir, map[string]string{"config/carboy/agents/aider.md": "---\nbottle: aider\nprovider: aider\n---\n", "config/carboy/bottles/aider.md": "---\nnetwork: \"off\"\n---\n"})
	out := h.ok("init")
	if !strings.Contains(out, "claude (") || !strings.Contains(out, "bottles/claude.md") || !strings.Contains(out, "aider (") {
		t.Errorf("init: %s", out)
	}
	h.ok("manifest", "check")
	if plan := h.ok("up", "claude", "--plan"); !strings.Contains(plan, "ANTHROPIC_API_KEY, by its placeholder") {
		t.Errorf("the plan of what was written:\n%s", plan)
	}
	text, err := os.ReadFile(h.dir + "/config/carboy/bottles/aider.md")
	if err != nil || string(text) != "---\nnetwork: \"off\"\n---\n" {
		t.Errorf("what was there is %q, %v", text, err)
	}
	if again := h.ok("init", "--json"); strings.Contains(again, ".md\"\n") && !strings.Contains(again, `"written": []`) {
		t.Errorf("once more: %s", again)
	}
}
