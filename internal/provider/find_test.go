package provider_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/provider"
)

// machine is a user's home with files of a script, by their paths below it. One whose
// text begins with -> is a link.
func machine(t *testing.T, files map[string]string) (home string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(home, name)
		if to, ok := strings.CutPrefix(text, "->"); ok {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(strings.ReplaceAll(to, "HOME", home), at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, at, text)
		if strings.HasPrefix(text, "#!") || strings.HasPrefix(text, "\x7fELF") {
			if err := os.Chmod(at, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return home
}

func outside(home string, env map[string]string) *provider.Outside {
	return &provider.Outside{
		Home: home, Now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC),
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

const (
	elf  = "\x7fELF program"
	node = "#!/usr/bin/env node\n"
)

// TestFindProgram looks for programs where installers put them.
func TestFindProgram(t *testing.T) {
	codexPackage := `{"version": "0.171.0", "bin": {"codex": "bin/codex.js"}, "optionalDependencies": {"@openai/codex-linux-x64": "*", "@openai/codex-win32-x64": "*"}}`
	tests := []struct {
		name, agent string
		files       map[string]string
		env         map[string]string
		version     string
		argv        []string // HOME stands for the home; nil: it is nowhere
		shown       []string // source at target
		copied      []string
	}{
		{name: "nowhere", agent: "claude"},
		{
			name: "native-installer", agent: "claude",
			files:   map[string]string{".local/bin/claude": "->HOME/.local/share/claude/versions/2.1.9", ".local/share/claude/versions/2.1.9": elf, ".local/share/claude/versions/2.1.10": elf},
			version: "2.1.9", argv: []string{"/opt/carboy/claude/program/2.1.9"},
			shown: []string{"HOME/.local/share/claude/versions at /opt/carboy/claude/program"},
		},
		{
			name: "newest-version", agent: "claude",
			files:   map[string]string{".local/share/claude/versions/2.1.9": elf, ".local/share/claude/versions/2.1.10": elf},
			version: "2.1.10", argv: []string{"/opt/carboy/claude/program/2.1.10"},
			shown: []string{"HOME/.local/share/claude/versions at /opt/carboy/claude/program"},
		},
		{
			name: "among-others", agent: "codex", files: map[string]string{".local/bin/codex": elf, ".local/bin/private": "mine"},
			argv: []string{"/home/user/.local/bin/codex"}, copied: []string{"HOME/.local/bin/codex to /home/user/.local/bin/codex"},
		},
		{
			name: "path-first", agent: "codex", env: map[string]string{"PATH": "relative:HOME/mine"},
			files: map[string]string{"mine/codex": elf, ".local/bin/codex": elf},
			argv:  []string{"/home/user/.local/bin/codex"}, copied: []string{"HOME/mine/codex to /home/user/.local/bin/codex"},
		},
		{
			name: "nvm", agent: "codex",
			files: map[string]string{
				".nvm/versions/node/v22.1.0/bin/codex":                                                                        "->../lib/node_modules/@openai/codex/bin/codex.js",
				".nvm/versions/node/v22.1.0/bin/node":                                                                         elf,
				".nvm/versions/node/v22.1.0/include/node/node.h":                                                              "",
				".nvm/versions/node/v22.1.0/lib/node_modules/@openai/codex/bin/codex.js":                                      node,
				".nvm/versions/node/v22.1.0/lib/node_modules/@openai/codex/package.json":                                      codexPackage,
				".nvm/versions/node/v22.1.0/lib/node_modules/@openai/codex/node_modules/@openai/codex-linux-x64/package.json": "{}",
				".nvm/versions/node/v22.1.0/lib/node_modules/other/package.json":                                              "{}",
			},
			version: "0.171.0",
			argv:    []string{"/opt/carboy/codex/runtime/bin/node", "/opt/carboy/codex/node_modules/@openai/codex/bin/codex.js"},
			shown: []string{
				"HOME/.nvm/versions/node/v22.1.0/lib/node_modules/@openai/codex at /opt/carboy/codex/node_modules/@openai/codex",
				"HOME/.nvm/versions/node/v22.1.0/bin at /opt/carboy/codex/runtime/bin",
			},
		},
		{
			name: "bun", agent: "codex", env: map[string]string{"BUN_INSTALL": "HOME/bun", "PATH": "HOME/.volta/tools/image/node/22.0.0/bin"},
			files: map[string]string{
				"bun/bin/codex": "->../install/global/node_modules/@openai/codex/bin/codex.js",
				"bun/install/global/node_modules/@openai/codex/bin/codex.js":           node,
				"bun/install/global/node_modules/@openai/codex/package.json":           codexPackage,
				"bun/install/global/node_modules/@openai/codex-linux-x64/package.json": "{}",
				"bun/install/global/node_modules/@openai/something-else/package.json":  "{}",
				".volta/tools/image/node/22.0.0/bin/node":                              elf,
				".volta/tools/image/node/22.0.0/include/node/node.h":                   "",
			},
			version: "0.171.0",
			argv:    []string{"/opt/carboy/codex/runtime/bin/node", "/opt/carboy/codex/node_modules/@openai/codex/bin/codex.js"},
			shown: []string{
				"HOME/bun/install/global/node_modules/@openai/codex at /opt/carboy/codex/node_modules/@openai/codex",
				"HOME/bun/install/global/node_modules/@openai/codex-linux-x64 at /opt/carboy/codex/node_modules/@openai/codex-linux-x64",
				"HOME/.volta/tools/image/node/22.0.0/bin at /opt/carboy/codex/runtime/bin",
			},
		},
		{
			name: "volta-shim", agent: "claude",
			files: map[string]string{
				".volta/bin/claude": "->volta-shim", ".volta/bin/volta-shim": elf,
				".volta/tools/image/packages/@anthropic-ai/claude-code/bin/claude":                                                "->../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
				".volta/tools/image/packages/@anthropic-ai/claude-code/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe": elf,
				".volta/tools/image/packages/@anthropic-ai/claude-code/lib/node_modules/@anthropic-ai/claude-code/package.json":   `{"version": "2.1.3"}`,
			},
			env: map[string]string{"PATH": "HOME/.volta/bin"}, version: "2.1.3",
			argv:  []string{"/opt/carboy/claude/node_modules/@anthropic-ai/claude-code/bin/claude.exe"},
			shown: []string{"HOME/.volta/tools/image/packages/@anthropic-ai/claude-code/lib/node_modules/@anthropic-ai/claude-code at /opt/carboy/claude/node_modules/@anthropic-ai/claude-code"},
		},
		{
			name: "pnpm", agent: "claude", env: map[string]string{"PATH": "HOME/.local/share/pnpm"},
			files: map[string]string{
				".local/share/pnpm/claude": "#!/bin/sh\nbasedir=$(dirname x)\nexec \"$basedir/global/5/node_modules/@anthropic-ai/claude-code/bin/claude.exe\"\n",
				".local/share/pnpm/global/5/node_modules/@anthropic-ai/claude-code":                                       "->../.pnpm/c@1/node_modules/@anthropic-ai/claude-code",
				".local/share/pnpm/global/5/node_modules/.pnpm/c@1/node_modules/@anthropic-ai/claude-code/package.json":   `{"version": "2.1.4", "bin": {"claude": "bin/claude.exe"}}`,
				".local/share/pnpm/global/5/node_modules/.pnpm/c@1/node_modules/@anthropic-ai/claude-code/bin/claude.exe": elf,
			},
			version: "2.1.4", argv: []string{"/opt/carboy/claude/node_modules/@anthropic-ai/claude-code/bin/claude.exe"},
			shown: []string{"HOME/.local/share/pnpm/global/5/node_modules/.pnpm/c@1/node_modules/@anthropic-ai/claude-code at /opt/carboy/claude/node_modules/@anthropic-ai/claude-code"},
		},
		{
			name: "npm-prefix", agent: "claude",
			files: map[string]string{
				".npmrc":         "; mine\nprefix = ${HOME}/npm\n//registry/:_authToken=secret\n",
				"npm/bin/claude": "->../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
				"npm/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe": elf,
			},
			argv:  []string{"/opt/carboy/claude/node_modules/@anthropic-ai/claude-code/bin/claude.exe"},
			shown: []string{"HOME/npm/lib/node_modules/@anthropic-ai/claude-code at /opt/carboy/claude/node_modules/@anthropic-ai/claude-code"},
		},
		{
			name: "uv-tool", agent: "aider",
			files: map[string]string{
				".local/bin/aider":                           "->HOME/.local/share/uv/tools/aider-chat/bin/aider",
				".local/share/uv/tools/aider-chat/bin/aider": "#!/x/bin/python\n", ".local/share/uv/tools/aider-chat/pyvenv.cfg": "",
				".local/share/uv/tools/aider-chat/bin/python":                           "->HOME/.local/share/uv/python/cpython-3.12/bin/python3.12",
				".local/share/uv/tools/aider-chat/lib/python3.12/site-packages/aider/x": "",
				".local/share/uv/python/cpython-3.12/bin/python3.12":                    elf,
				".local/share/uv/python/cpython-3.12/lib/python3.12/os.py":              "",
			},
			argv: []string{
				"/opt/carboy/aider/runtime/bin/python3.12", "-I", "-S", "-c", "RUN",
				"/opt/carboy/aider/venv/lib/python3.12/site-packages", "/opt/carboy/aider/venv/bin/aider",
			},
			shown: []string{
				"HOME/.local/share/uv/python/cpython-3.12 at /opt/carboy/aider/runtime",
				"HOME/.local/share/uv/tools/aider-chat at /opt/carboy/aider/venv",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := machine(t, tt.files)
			env := map[string]string{}
			for k, v := range tt.env {
				env[k] = strings.ReplaceAll(v, "HOME", home)
			}
			p, err := provider.Find("", tt.agent)
			if err != nil {
				t.Fatal(err)
			}
			in, err := p.FindProgram(outside(home, env), "/home/user")
			if err != nil {
				t.Fatal(err)
			}
			if tt.argv == nil || in == nil {
				if in != nil || tt.argv != nil {
					t.Fatalf("found %+v, want %v", in, tt.argv)
				}
				return
			}
			if i := slices.Index(tt.argv, "RUN"); i >= 0 {
				tt.argv[i] = in.Argv[i]
			}
			var shown, copied []string
			for _, s := range in.Shown {
				shown = append(shown, strings.ReplaceAll(s.Source, home, "HOME")+" at "+s.Target)
			}
			for _, c := range in.Copied {
				copied = append(copied, strings.ReplaceAll(c.Source, home, "HOME")+" to "+c.Target)
			}
			for _, d := range []string{cmp.Diff(tt.argv, in.Argv), cmp.Diff(tt.shown, shown), cmp.Diff(tt.copied, copied), cmp.Diff(tt.version, in.Version)} {
				if d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// TestNothingElseIsShown looks that no home, and no directory with others' files in it, is
// among what a sandbox sees of a program.
func TestNothingElseIsShown(t *testing.T) {
	home := machine(t, map[string]string{"bin/claude": elf, "secret.txt": "mine"})
	p, err := provider.Find("", "claude")
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.FindProgram(outside(home, map[string]string{"PATH": home + "/bin"}), "/home/user")
	if err != nil || in == nil {
		t.Fatalf("%+v, %v", in, err)
	}
	if len(in.Shown) != 0 || len(in.Copied) != 1 {
		t.Errorf("shown %v, copied %v: want the program copied alone", in.Shown, in.Copied)
	}
}
