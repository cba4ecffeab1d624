package workspace_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// heldReason applies one change to an empty base in a dry run.
func heldReason(t *testing.T, base tree, upper tree, path string) string {
	t.Helper()
	b, u := twoDirs(t, base)
	upper.write(t, u)
	for _, it := range compare(t, b, stream(t, u, options(true, future))).Items {
		if it.Path == path {
			return it.Held
		}
	}
	t.Fatalf("no change of %q", path)
	return ""
}

func TestHeldByName(t *testing.T) {
	held := []string{
		".git", "sub/.git", ".git/config", "a/.git/hooks/x", ".GIT", ".Git/hooks", "git~1", "GIT~1/config", "GIT~12",
		".git.", ".git ", ".git. .", ".git::$INDEX_ALLOCATION", ".g\u200cit", "\u200d.git", ".\ufeffGIT", ".gi\u00adt",
		".git\u200f", `sub\.git\config`, ".gitmodules", ".GITMODULES", "GITMOD~1", "gi7eba~1",
		".husky/pre-commit", ".githooks/x", ".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", "lefthook-local.jsonc", ".lefthook.toml", "hk.local.pkl", "grumphp.yml",
		".vscode/tasks.json", ".VSCode/settings.json", ".v\u017fcode/x", ".idea/x.xml", "x.code-workspace", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el",
		".github/workflows/x.yml", ".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", "Jenkins\ufb01le", ".travis.yml", "azure-pipelines.yml",
		"CODEOWNERS", "docs/CODEOWNERS", ".dependabot/config.yml", "netlify.toml", "vercel.json",
		".woodpecker.yml", ".woodpecker/x", ".drone.yml", ".buildkite/x",
		".envrc", "sub/.envrc", ".env", ".env.local", ".tool-versions", "mise.toml", ".mise.toml", ".mise.local.toml",
		".devcontainer/devcontainer.json", ".claude/settings.json", "CLAUDE.md", "sub/AGENTS.md", ".cursor/rules", ".cursorrules", ".mcp.json",
		".codex/x", ".gemini/x", ".aider.conf.yml", ".github/copilot-instructions.md", ".windsurfrules",
		".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", "pip.conf", ".cargo/config.toml", "sub/.cargo/config", ".bazelrc", ".gdbinit",
		".pnp.cjs", ".pnp.loader.mjs", "sitecustomize.py", "usercustomize.py", "a.pth", "pyvenv.cfg", ".jvmopts", ".mvn/jvm.config", ".sbtopts", ".ghci", ".rvmrc",
		"gradle/wrapper/gradle-wrapper.properties", "gradle.properties", "x.desktop", ".theia/tasks.json", ".yarnrc.yml", ".bashrc", ".profile", ".zshrc",
		".ssh/authorized_keys", ".config/autostart/x.desktop", ".config/systemd/user/x.service", ".Rprofile", ".irbrc", ".pdbrc", ".tmux.conf", ".inputrc",
		".emacs.d/init.el", ".netrc", ".gitconfig", ".local/bin/ls", ".local/share/applications/x", "GEMINI.md", ".clinerules/x", "opencode.json",
		".venv/bin/python", "venv/bin/python", ".config/fish/config.fish", "home/u/.BASHRC", "bashrc~/.ba\u017fhrc", "a/dbus-1/services/x",
		".carboy-tmp-1", ".carboy.toml", "sub/.Carboy.TOML", ".carboy/agents/x.md",
	}
	for _, p := range held {
		if heldReason(t, nil, tree{p: "x"}, p) == "" {
			t.Errorf("%q is not held", p)
		}
	}
	free := []string{
		"bin/x", "src/config.yaml", "x.path", "x/pth", "requirements.txt", "setup.cfg", "build.gradle", "pom.xml", "gradlew", "site.py", "customize.py",
		"profile", "bashrc", "local/x", "config/x", "systemd/x", "share/x", "user/x", "prompt.md", "x.instructions", "rules", "fish/readme", "venv.md",
		"main.go", "git", "gitignore", ".gitignore", ".gitkeep", ".gitattributes", "env", ".env.example", "config", ".cargo/registry", "cargo/config",
		".editorconfig", "Makefile", "github/x", "a.git/x", "HEAD", "hooks/x", "objects/x", "vscode", "jenkins.go", "git~", "git~x", "x~1", ".dockerignore",
		"claude.go", "agents/md", ".e", "...", ". ", "mise/readme",
	}
	for _, p := range free {
		if reason := heldReason(t, nil, tree{p: "x"}, p); reason != "" {
			t.Errorf("%q is held: %s", p, reason)
		}
	}
}

func TestHeldByReasonOfTheMostSpecificRule(t *testing.T) {
	reason := heldReason(t, nil, tree{".github/copilot-instructions.md": "x"}, ".github/copilot-instructions.md")
	if !strings.Contains(reason, "AI agent") {
		t.Errorf("reason = %q", reason)
	}
}

func TestHeldByWhatItIs(t *testing.T) {
	tests := []struct {
		name        string
		base, upper tree
		path        string
		held        bool
	}{
		{"link-inside", nil, tree{"d/l": "-> ../x"}, "d/l", false},
		{"link-beside", nil, tree{"l": "-> x/y"}, "l", false},
		{"link-to-itself", nil, tree{"d/l": "-> ."}, "d/l", false},
		{"link-to-root-of-tree", nil, tree{"d/l": "-> .."}, "d/l", false},
		{"link-absolute", nil, tree{"l": "-> /etc/passwd"}, "l", true},
		{"link-up", nil, tree{"l": "-> ../x"}, "l", true},
		{"link-up-from-deep", nil, tree{"d/e/l": "-> ../../../x"}, "d/e/l", true},
		{"link-up-after-down", nil, tree{"l": "-> x/../../y"}, "l", true},
		{"link-through-another", nil, tree{"l": "-> x/.."}, "l", true},
		{"link-to-held", nil, tree{"l": "-> .git/hooks"}, "l", true},
		{"link-to-held-below", nil, tree{"d/l": "-> ../.vscode/tasks.json"}, "d/l", true},
		{"link-by-link-inside", tree{"in": "-> d", "d/x": "y"}, tree{"l": "-> in/x"}, "l", false},
		{"link-by-link-of-the-tree", tree{"ext": "-> /etc"}, tree{"l": "-> ext/canary"}, "l", true},
		{"link-to-link-of-the-tree", tree{"ext": "-> ../out"}, tree{"d/l": "-> ../ext"}, "d/l", true},
		{"link-by-link-to-link", tree{"ext": "-> ../out", "in": "-> ./ext"}, tree{"l": "-> in/x"}, "l", true},
		{"link-by-held-link", nil, tree{"held": "-> /etc", "l": "-> held/passwd"}, "l", true},
		{"link-by-link-that-climbs", tree{"a/b/up": "-> ../.."}, tree{"l": "-> a/b/up/x"}, "l", false},
		{"link-by-link-that-climbs-out", tree{"a/b/up": "-> ../../.."}, tree{"l": "-> a/b/up/x"}, "l", true},
		{"link-by-link-that-went", tree{"ext": "-> /etc"}, tree{"ext/x": "y", "l": "-> ext/x"}, "l", true},
		{"link-by-link-that-came", tree{"d/x": "y"}, tree{"e": "-> ../out", "l": "-> e/x"}, "l", true},
		{"link-by-link-to-held", tree{"in": "-> .git"}, tree{"l": "-> in/hooks"}, "l", true},
		{"link-to-its-own-name", nil, tree{"l": "-> l"}, "l", true},
		{"link-in-a-ring", nil, tree{"a": "-> b", "b": "-> a"}, "a", true},

		{"attributes-plain", nil, tree{".gitattributes": "*.go text eol=lf\n*.png -diff binary\n"}, ".gitattributes", false},
		{"attributes-filter", nil, tree{".gitattributes": "* filter=evil\n"}, ".gitattributes", true},
		{"attributes-diff", nil, tree{"sub/.gitattributes": "*.x text\n*.y\tdiff=evil"}, "sub/.gitattributes", true},
		{"attributes-merge", nil, tree{".GitAttributes": "[attr]m merge=evil"}, ".GitAttributes", true},
		{"attributes-long", nil, tree{".gitattributes": strings.Repeat("# x\n", 1<<19)}, ".gitattributes", true},

		{"bare", nil, tree{"r/HEAD": "x", "r/objects": "/", "r/refs": "/", "r/config": "y"}, "r/config", true},
		{"bare-in-lower-case", nil, tree{"r/head": "x", "r/Objects": "/", "r/REFS": "/"}, "r/head", true},
		{"bare-by-commondir", nil, tree{"r/HEAD": "x", "r/commondir": "../y"}, "r/commondir", true},
		{"bare-completed", tree{"r/objects": "/", "r/refs": "/"}, tree{"r/HEAD": "x"}, "r/HEAD", true},
		{"bare-of-the-host", tree{"r/objects": "/", "r/refs": "/", "r/HEAD": "x"}, tree{"r/hooks/post-update": "x"}, "r/hooks/post-update", true},
		{"bare-base-itself", tree{"objects": "/", "refs": "/", "HEAD": "x"}, tree{"config": "x"}, "config", true},
		{"nearly-bare", tree{"r/objects": "/"}, tree{"r/HEAD": "x", "r/config": "x"}, "r/config", false},
		{"beside-bare", nil, tree{"r/HEAD": "x", "r/objects": "/", "r/refs": "/", "s": "x"}, "s", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if reason := heldReason(t, tt.base, tt.upper, tt.path); (reason != "") != tt.held {
				t.Errorf("held: %q, want held %v", reason, tt.held)
			}
		})
	}
}

// Without content nobody can tell what a .gitattributes says.
func TestAttributesWithoutContentAreHeld(t *testing.T) {
	base, upper := twoDirs(t, nil)
	tree{".gitattributes": "* text\n"}.write(t, upper)
	diff(t, "diff", letters(compare(t, base, stream(t, upper, options(false, future))).Items), []string{"*A .gitattributes"})
}

func TestHoldRulesAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range workspace.HoldRules() {
		if r.Pattern != strings.ToLower(r.Pattern) || r.Reason == "" || r.Source == "" || seen[r.Pattern] {
			t.Errorf("bad or repeated rule %+v", r)
		}
		seen[r.Pattern] = true
	}
}

// fits makes a path that a pattern catches.
var fits = strings.NewReplacer("y*ml", "yaml", "*", "x")

// TestEveryHoldRule writes what each rule is about into a workspace, in lower
// case and in capitals: all of it is held back, and taken when it is named.
func TestEveryHoldRule(t *testing.T) {
	b, u := twoDirs(t, nil)
	upper := tree{"free": "x"}
	for i, r := range workspace.HoldRules() {
		p := fits.Replace(r.Pattern)
		upper[fmt.Sprintf("r%d/%s", i, p)] = "x"
		upper[fmt.Sprintf("r%d/deeper/%s", i, strings.ToUpper(p))] = "x"
	}
	upper.write(t, u)
	s := stream(t, u, options(true, future))
	res, err := apply(t, b, s, workspace.ApplyOptions{})
	must(t, err)
	held := map[string]bool{}
	for _, it := range res.Held {
		held[it.Path] = it.Held != ""
	}
	before := read(t, b)
	var named []string
	for p := range upper {
		if p == "free" {
			continue
		}
		named = append(named, p)
		if before[p] != "" || !held[p] {
			t.Errorf("%q is not held", p)
		}
	}
	if before["free"] != "x" {
		t.Error("what no rule is about is not applied")
	}
	_, err = apply(t, b, s, workspace.ApplyOptions{Paths: named, Allow: named})
	must(t, err)
	after := read(t, b)
	for p := range upper {
		if after[p] != "x" {
			t.Errorf("%q was named and is not taken: %q", p, after[p])
		}
	}
}

// Any spelling of .git that some file system takes for it is held, wherever
// it stands.
func FuzzHold(f *testing.F) {
	f.Add("a", "b", uint8(0), uint8(0))
	f.Add("x y", "", uint8(7), uint8(3))
	ignorable := []string{"", "\u200b", "\u200c", "\u200d", "\u200e", "\u202a", "\u206f", "\ufeff", "\u00ad"}
	tails := []string{"", " ", ".", ". .", ":x", "::$DATA"}
	f.Fuzz(func(t *testing.T, before, after string, a, b uint8) {
		name := []byte(".git")
		for i := 1; i < 4; i++ {
			if a>>i&1 == 1 {
				name[i] -= 'a' - 'A'
			}
		}
		mark := ignorable[int(b)%len(ignorable)]
		at := int(a) % 5
		p := string(name[:at]) + mark + string(name[at:]) + tails[int(b)/len(ignorable)%len(tails)]
		for _, side := range []*string{&before, &after} {
			if *side = clean(*side); *side == "" {
				*side = "x"
			}
		}
		var entries []rawEntry
		entries = append(entries, header(), dir(before), dir(before+"/"+p), link(before+"/"+p+"/"+after, "y"), end("3"))
		base := t.TempDir()
		res, err := apply(t, base, raw(t, entries...), workspace.ApplyOptions{})
		if err != nil {
			t.Skip(err)
		}
		if got := paths(res.Held); len(got) < 2 {
			t.Fatalf("%q: held only %q", before+"/"+p+"/"+after, got)
		}
	})
}

// clean makes a file's name of anything.
func clean(s string) string {
	b := bytes.Map(func(r rune) rune {
		if r == '/' || r == 0 || r == 0xfffd {
			return -1
		}
		return r
	}, []byte(s))
	s = string(b[:min(len(b), 100)])
	if s == "." || s == ".." {
		return ""
	}
	return strings.ToValidUTF8(s, "")
}
