package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestMistakes: each is told with its place, and what was meant.
func TestMistakes(t *testing.T) {
	const ok = "---\nbottle: b\n---\n"
	agent := func(text string) map[string]string {
		return map[string]string{"bottles/b.md": "---\npolicy: {presets: [npm]}\n---\n", "agents/a.md": text}
	}
	bottle := func(text string) map[string]string { return map[string]string{"bottles/b.md": text} }
	remote := func(text string) map[string]string { return bottle("---\nremotes:\n  r:\n" + text + "---\n") }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"key":             {bottle("---\nimage: x\nnetwrk: on\n---\n"), `C/bottles/b.md:3:1: unknown key "netwrk" (did you mean network?)`},
		"key of JSON":     {map[string]string{"bottles/b.json": "{\n  \"superise\": true}"}, `C/bottles/b.json:2:3: unknown key "superise" (did you mean supervise?)`},
		"key within":      {bottle("---\nlimits:\n  memroy: 4g\n---\n"), `C/bottles/b.md:3:3: unknown key "memroy" in limits (did you mean memory?)`},
		"key with a dash": {bottle("---\ngit-user: {name: x}\n---\n"), `C/bottles/b.md:2:1: unknown key "git-user" (did you mean git_user?)`},
		"no such key":     {agent("---\nbottle: b\nzebra: 1\n---\n"), `C/agents/a.md:3:1: unknown key "zebra" (known are bottle, provider, prompt, skills, git_user, files, policy)`},
		"capitals":        {agent("---\nBottle: b\n---\n"), `C/agents/a.md:2:1: unknown key "Bottle" (did you mean bottle?)`},
		"agent's remotes": {agent("---\nbottle: b\nremotes: {}\n---\n"), `C/agents/a.md:3:1: unknown key "remotes" (known are bottle, provider, prompt, skills, git_user, files, policy)`},
		"twice":           {bottle("---\nimage: a\nuser: root\nimage: b\n---\n"), `C/bottles/b.md:4:1: image is there twice: in line 2 too (say it once)`},
		"kind":            {bottle("---\nsupervise: \"yes\"\n---\n"), `C/bottles/b.md:2:12: supervise: a text, where true or false is wanted`},
		"nothing":         {bottle("---\npolicy:\n---\n"), `C/bottles/b.md:2:1: policy: nothing, where a mapping is wanted`},
		"secret's value":  {bottle("---\nsecrets:\n  - {name: T, value: tok_very_secret}\n---\n"), `C/bottles/b.md:3:5: secrets[0]: a mapping, where a text is wanted (the name alone: carboy secret keeps values)`},
		"secret's name":   {bottle("---\nsecrets: [\"tok very secret\"]\n---\n"), `C/bottles/b.md:2:11: secrets: one is no name of a secret (letters, digits and _, and no digit first: API_TOKEN)`},
		"secret's place":  {bottle("---\npolicy: {presets: [npm]}\nsecrets: [TOKEN]\n---\n"), `C/bottles/b.md:3:11: no rule has a place for the secret TOKEN (secrets: [{name: TOKEN, header: Authorization}] in a rule of the policy, or a preset that knows it)`},
		"secret of rule":  {bottle("---\npolicy:\n  rules:\n    - hosts: [a.example]\n      secrets: [{name: TOKEN, header: Authorization}]\n---\n"), `C/bottles/b.md:5:18: policy.rules[0].secrets[0].name: the sandbox was not given the secret TOKEN (secrets: [TOKEN], in the bottle)`},
		"policy":          {bottle("---\npolicy:\n  rules:\n    - hosts: [a.example]\n      ports: [0]\n---\n"), `C/bottles/b.md:5:15: policy.rules[0].ports[0]: "0" is no port (1 to 65535, or a range: 8000-8099)`},
		"preset":          {bottle("---\npolicy: {presets: [nmp]}\n---\n"), `C/bottles/b.md:2:20: policy.presets[0]: "nmp" is no preset (anthropic, crates, debian, gemini, github, go, npm, openai, pypi)`},
		"wall":            {bottle("---\nisolation: gvizor\n---\n"), `C/bottles/b.md:2:1: isolation: "gvizor" is no wall (gvisor or process)`},
		"weaker wall":     {bottle("---\nstronger: [process]\n---\n"), `C/bottles/b.md:2:1: stronger: process is not stronger than gvisor (leave it out)`},
		"network":         {bottle("---\nnetwork: public\n---\n"), `C/bottles/b.md:2:1: network: no such network "public": off, policy or on`},
		"user":            {bottle("---\nuser: nosuch\n---\n"), `C/bottles/b.md:2:1: user: no such user "nosuch": user or root`},
		"image's path":    {bottle("---\nimage: /nowhere\n---\n"), `C/bottles/b.md:2:1: image: "/nowhere" is a path, where the name of an image is wanted (carboy image import --name NAME FILE keeps one by a name)`},
		"little memory":   {bottle("---\nlimits: {memory: \"1\"}\n---\n"), `C/bottles/b.md:2:10: limits.memory 1 bytes: too little (at least 16m)`},
		"large disk":      {bottle("---\nlimits:\n  disk: 900000t\n---\n"), `C/bottles/b.md:3:3: limits.disk 900000t: out of bounds (from 4m to 8t)`},
		"tab":             {bottle("---\nlimits:\n\tmemory: 4g\n---\n"), `C/bottles/b.md:3:1: a tab (YAML indents by spaces)`},
		"image":           {bottle("---\nimage: a\ntemplate: b\n---\n"), `C/bottles/b.md:3:1: a bottle has an image or a template (leave one of them out)`},
		"size":            {bottle("---\nlimits: {memory: lots}\n---\n"), `C/bottles/b.md:2:18: limits.memory: "lots" is no size (a number of bytes, or one with a unit: 512m, 4g)`},
		"cache":           {bottle("---\ncaches: [nmp]\n---\n"), `C/bottles/b.md:2:10: cache nmp: there is no such cache (` + strings.Join(cache.Names(), ", ") + `)`},
		"relative key":    {remote("    url: ssh://git@h/r.git\n    key: {path: .ssh/id}\n"), `C/bottles/b.md:5:11: remotes.r.key.path: ".ssh/id" is a relative path, which leads elsewhere from each directory (an absolute path, or one below ~/)`},
		"no key":          {remote("    url: ssh://git@h/r.git\n"), `C/bottles/b.md:3:3: remotes.r.key: the key has no path (key: {path: ~/.ssh/id_ed25519})`},
		"key's provider":  {remote("    url: ssh://git@h/r.git\n    key: {provider: vault, path: /k}\n"), `C/bottles/b.md:5:11: remotes.r.key.provider: there is no provider "vault" of keys (static, agent, secret)`},
		"port":            {remote("    url: ssh://h:99999/r.git\n"), `C/bottles/b.md:4:5: remotes.r.url: its port is none from 1 to 65535 (ssh://git@host/path, git@host:path or https://host/path)`},
		"port or path":    {remote("    url: git@h:2222/r.git\n"), `C/bottles/b.md:4:5: remotes.r.url: whether it begins with a port or with a directory can't be told: write ssh:// (ssh://git@host/path, git@host:path or https://host/path)`},
		"protected":       {remote("    url: https://h/r.git\n    push: {protected: [main]}\n"), `C/bottles/b.md:5:24: remotes.r.push.protected: "main": it protects nothing (give the whole name, as refs/heads/main, or refs/heads/release/** for all that is below)`},
		"twice one":       {remote("    url: https://h/r.git\n  s:\n    url: git@h:r\n    key: {path: /k}\n"), `C/bottles/b.md:6:5: remotes.s is the same repository as remotes.r, and what one may push the other might not (leave one out)`},
		"no url":          {remote("    key: {path: /k}\n"), `C/bottles/b.md:3:3: remotes.r has no url (url: ssh://git@host/path)`},
		"password":        {remote("    url: https://me:tok_very_secret@h/r.git\n"), `C/bottles/b.md:4:5: remotes.r.url: a credential does not belong into it (ssh://git@host/path, git@host:path or https://host/path)`},
		"plain":           {remote("    url: http://h/r.git\n"), `C/bottles/b.md:4:5: remotes.r.url: git's own and plain HTTP prove no host, and nothing else is spoken (ssh://git@host/path, git@host:path or https://host/path)`},
		"host key":        {remote("    url: ssh://git@h/r.git\n    key: {path: /k}\n    known_host_key: h ssh-ed25519 AAAA\n"), `C/bottles/b.md:6:5: remotes.r.known_host_key: it is no key of a host (as carboy git hostkey prints it: ssh-ed25519 AAAA...)`},
		"remote's name":   {bottle("---\nremotes: {r.git: {url: ssh://h/r}}\n---\n"), `C/bottles/b.md:2:11: "r.git" is no name of a remote (letters, digits, . _ and -, the first and the last a letter or a digit, no .. within, no .git at the end, and not lock)`},
		"off with git":    {bottle("---\nnetwork: off\nsupervise: true\n---\n"), `C/bottles/b.md:2:1: supervision is reached through the gate, and network is off (leave network out: without rules nothing else is reached)`},
		"extends":         {bottle("---\nextends: bas\n---\n"), `C/bottles/b.md:2:10: there is no bottle "bas" (carboy manifest ls)`},
		"circle":          {map[string]string{"bottles/a.md": "---\nextends: b\n---\n", "bottles/b.md": "---\nextends: [c, a]\n---\n", "bottles/c.md": "---\n---\n"}, `C/bottles/b.md:2:14: b extends a, which extends b in turn (leave one of them out)`},
		"of itself":       {bottle("---\nextends: b\n---\n"), `C/bottles/b.md:2:10: b extends b, which extends b in turn (leave one of them out)`},
		"no front matter": {agent("Just do it.\n"), `C/agents/a.md:1:1: there is no front matter (--- on the first line, YAML, and --- on a line of its own)`},
		"no end":          {agent("---\nbottle: b\n"), `C/agents/a.md:1:1: the front matter has no end: a line of --- is missing`},
		"no YAML":         {agent("---\nbottle: [\n---\n"), `C/agents/a.md:2:9: neither YAML nor JSON`},
		"anchor":          {agent("---\nbottle: &x b\n---\n"), `C/agents/a.md:2:9: anchors, aliases, merge keys, tags and directives are not read (write it out)`},
		"no bottle":       {agent("---\nprovider: codex\n---\n"), `C/agents/a.md:1:1: the agent a is in no bottle (bottle: NAME)`},
		"bottle":          {map[string]string{"bottles/base.md": "---\n---\n", "agents/a.md": "---\nbottle: bsae\n---\n"}, `C/agents/a.md:2:1: there is no bottle "bsae" (did you mean base?)`},
		"provider":        {agent("---\nbottle: b\nprovider: clade\n---\n"), `C/agents/a.md:3:1: there is no provider "clade" (did you mean claude?)`},
		"prompt twice":    {agent("---\nbottle: b\nprompt: one\n---\ntwo\n"), `C/agents/a.md:3:1: prompt: there is a text below the front matter too (leave one of them out)`},
		"skill":           {agent("---\nbottle: b\nskills: [../x]\n---\n"), `C/agents/a.md:3:10: "../x" is no name of a skill (letters, digits, - and _, at most 64)`},
		"file":            {agent("---\nbottle: b\nfiles: [{path: ~/../x, content: \"\"}]\n---\n"), `C/agents/a.md:3:10: files[0]: "~/../x" is no file below the home (a path below the home, such as ~/notes.md, and an octal mode)`},
		"mode":            {agent("---\nbottle: b\nfiles: [{path: ~/x, content: \"\", mode: \"4755\"}]\n---\n"), `C/agents/a.md:3:10: files[0]: "4755" is no mode of a file (a path below the home, such as ~/notes.md, and an octal mode)`},
		"git user":        {agent("---\nbottle: b\ngit_user: {name: \"a\\nb\"}\n---\n"), `C/agents/a.md:3:12: git_user.name: "a\nb" can't be used: it has to be one line without < and >`},
		"wider":           {agent("---\nbottle: b\npolicy: {presets: [pypi]}\n---\n"), `C/agents/a.md:3:10: policy.presets: no rule of the bottle b allows all that pypi does; C/agents/a.md:3:10: policy.presets: no rule of the bottle b allows all that pypi/files does`},
		"without network": {map[string]string{"bottles/b.md": "---\n---\n", "agents/a.md": "---\nbottle: b\npolicy:\n  rules: [{hosts: [a.example]}]\n---\n"}, `C/agents/a.md:4:11: policy.rules[0]: no rule of the bottle b allows all that rule-1 does`},
		"bottle's name":   {map[string]string{"bottles/B_1.md": "---\n---\n"}, `C/bottles/B_1.md:1:1: "B_1" is no name of a bottle (a to z, 0 to 9 and -, a letter first, at most 40)`},
		"agent's name":    {map[string]string{"bottles/b.md": "---\n---\n", "agents/1a.md": ok}, `C/agents/1a.md:1:1: "1a" is no name of an agent (a to z, 0 to 9 and -, a letter first, at most 40)`},
		"two files":       {map[string]string{"bottles/b.md": "---\n---\n", "bottles/b.json": "{}"}, `C/bottles/b.md:1:1: the bottle b is there twice: C/bottles/b.json:1:1 (keep one of them)`},
		"two forms":       {map[string]string{"bottles/b.md": "---\n---\n", "manifest.json": "{\"bottles\":\n {\"b\": {}}}"}, `C/bottles/b.md:1:1: the bottle b is there twice: C/manifest.json:2:3 (keep one of them)`},
		"form's gate":     {map[string]string{"manifest.json": "{\"bottles\": {\"b\": {\"git-gate\": {\"repo\": {}}}}}"}, `C/manifest.json:1:33: unknown key "repo" in git-gate (did you mean repos?)`},
		"form's key":      {map[string]string{"manifest.json": "{\"bottle\": {}}"}, `C/manifest.json:1:2: unknown key "bottle" (did you mean bottles?)`},
		"form's agent":    {map[string]string{"manifest.json": "{\"agents\": {\"a\": {\"botle\": \"x\"}}}"}, `C/manifest.json:1:19: unknown key "botle" in agents.a (did you mean bottle?)`},
		"two mistakes":    {bottle("---\nimag: x\nusr: y\n---\n"), `C/bottles/b.md:2:1: unknown key "imag" (did you mean image?); C/bottles/b.md:3:1: unknown key "usr" (did you mean user?)`},
	} {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			dir := config(t, c.files)
			_, err := manifest.Load(manifest.Sources{Config: dir})
			if err == nil {
				t.Fatal("no mistake")
			}
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir, "C"), "\n", "; ")
			if got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			if strings.Contains(got, "very") {
				t.Error("a value is told")
			}
			if e, ok := errors.AsType[*sandbox.Error](manifest.Told(err)); !ok || e.Kind != sandbox.Invalid {
				t.Errorf("told as %v", manifest.Told(err))
			}
		})
	}
}

// TestDepth: bottles extend each other eight deep.
func TestDepth(t *testing.T) {
	files := map[string]string{"bottles/b0.md": "---\n---\n"}
	for i := 1; i <= 8; i++ {
		files[fmt.Sprintf("bottles/b%d.md", i)] = fmt.Sprintf("---\nextends: b%d\n---\n", i-1)
	}
	dir := config(t, files)
	if _, err := manifest.Load(manifest.Sources{Config: dir}); err != nil {
		t.Error(err)
	}
	write(t, dir, map[string]string{"bottles/b9.md": "---\nextends: b8\n---\n"})
	if _, err := manifest.Load(manifest.Sources{Config: dir}); err == nil || !strings.HasSuffix(err.Error(), "b9.md:2:1: b9 extends others 9 deep: 8 is the most") {
		t.Errorf("got %v", err)
	}
}

// TestHostileRepository: what lies where a repository's agents would is opened if it is a
// plain file of the repository's, of bounded size, and not else.
func TestHostileRepository(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"agents/secret.md": "---\nbottle: b\n---\ntok_very_secret\n"})
	for name, c := range map[string]struct {
		plant func(repo string) error
		want  string
	}{
		"a link": {func(repo string) error {
			return os.Symlink(filepath.Join(outside, "agents/secret.md"), filepath.Join(repo, ".carboy/agents/a.md"))
		}, "a.md: it is a link, which is not followed"},
		"a link of directories": {func(repo string) error {
			if err := os.Remove(filepath.Join(repo, ".carboy/agents")); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(outside, "agents"), filepath.Join(repo, ".carboy/agents"))
		}, "agents: it is a link, which is not followed"},
		"a pipe":      {func(repo string) error { return unix.Mkfifo(filepath.Join(repo, ".carboy/agents/a.md"), 0o644) }, "not a regular file"},
		"a directory": {func(repo string) error { return os.Mkdir(filepath.Join(repo, ".carboy/agents/a.md"), 0o755) }, "not a regular file"},
		"a large file": {func(repo string) error {
			return os.WriteFile(filepath.Join(repo, ".carboy/agents/a.md"), make([]byte, 1<<20+1), 0o644)
		}, "larger than 1 MiB"},
		"many files": {func(repo string) error {
			for i := range 1001 {
				if err := os.WriteFile(filepath.Join(repo, fmt.Sprintf(".carboy/agents/a%d.md", i)), nil, 0o644); err != nil {
					return err
				}
			}
			return nil
		}, "1001 files: 1000 are the most"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, repo := config(t, map[string]string{"bottles/b.md": "---\n---\n"}), t.TempDir()
			if err := os.MkdirAll(filepath.Join(repo, ".carboy/agents"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.plant(repo); err != nil {
				t.Fatal(err)
			}
			_, err := manifest.Load(manifest.Sources{Config: dir, Repository: repo})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "tok_") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestOthersMayWrite: a bottle that anybody could have written, or put there, is nobody's word.
func TestOthersMayWrite(t *testing.T) {
	for _, name := range []string{"", "bottles", "agents", "bottles/b.md", "agents/a.md", "manifest.json"} {
		dir := config(t, map[string]string{"bottles/b.md": "---\n---\n", "agents/a.md": "---\nbottle: b\nprovider: custom\n---\n", "manifest.json": "{}"})
		if _, err := manifest.Load(manifest.Sources{Config: dir}); err != nil {
			t.Fatal(err) // the control
		}
		at := filepath.Join(dir, name)
		fi, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, fi.Mode().Perm()|0o002); err != nil {
			t.Fatal(err)
		}
		x, err := manifest.Load(manifest.Sources{Config: dir})
		if want := at + ": others may write to it (chmod go-w " + at + ")"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
		_, err = x.Manifest("a")
		if name == "manifest.json" { // what is in it is not asked about
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "others may write to it") {
			t.Errorf("%q: the agent is run: %v", name, err)
		}
	}
}

func TestNoAgent(t *testing.T) {
	x, err := manifest.Load(manifest.Sources{Config: whole(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Manifest("demi")
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.NotFound || e.Hint != "did you mean demo?" {
		t.Errorf("got %v", err)
	}
}
