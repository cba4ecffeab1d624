package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packagedProvider knows an agent that this machine has not, by its package.
const packagedProvider = `
title = "Packed"
about = "an agent that comes from a registry"
program = "fakepacked"
[package]
version = "1.0.0"
image = "node:22"
needs = "npm"
steps = ["npm install --global --prefix {{.Dir}} --no-audit --no-fund fakepacked@{{.Version}}"]
path = "bin/fakepacked"
presets = ["npm"]
[run]
headless = ["-p"]
[access]
none = true
`

// TestAgentFromItsPackage runs an agent that is not on this machine: a template is built
// once, from the registry alone, and no run after that needs it.
func TestAgentFromItsPackage(t *testing.T) {
	t.Parallel()
	needs(t, "npm")
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		site := http.NewServeMux()
		nodePublished(site, map[string]any{"name": "fakepacked", "version": "1.0.0", "bin": map[string]string{"fakepacked": "index.js"}}, map[string]string{
			"index.js": "#!/usr/bin/env node\nconsole.log('packed', ...process.argv.slice(2))\n",
		})
		w.sites(worldA, map[string]http.Handler{npmRegistry: site})
		h := w.home()
		h.edit(h.dir, map[string]string{"config/carboy/agents/packed.toml": packagedProvider, "repo/a.txt": "one\n"})
		run := func(args ...string) result {
			return h.run(nil, append([]string{"agent", "run", "--isolation", wall, "--workspace", filepath.Join(h.dir, "repo"), "packed"}, args...)...)
		}
		r := run("--", "-p", "x")
		if r.code != 0 || r.stdout != "packed -p x\n" || !strings.Contains(r.stderr, "a template is built from its package, 1.0.0, once") {
			t.Fatalf("the first time: %+v", r)
		}
		w.forget()
		r = run("--", "-p", "y")
		if r.code != 0 || r.stdout != "packed -p y\n" || strings.Contains(r.stderr, "is built") || w.came(npmRegistry+" GET /fakepacked") {
			t.Errorf("again: %+v", r)
		}
		r = h.run(nil, "agent", "run", "--isolation", wall, "--workspace", filepath.Join(h.dir, "repo"), "--package-version", "9.9.9", "packed", "--", "-p")
		if r.code != 125 || !strings.Contains(r.stderr, "fakepacked 9.9.9 can't be built from its package: ") {
			t.Errorf("a version that there is not: %+v", r)
		}
		if list := h.ok("template", "ls"); strings.Count(list, "carboy-agent-packed") != 1 {
			t.Errorf("after a version that there is not, templates are\n%s", list)
		}

		// What can be known is told before a template is built.
		for says, flags := range map[string][]string{
			"it holds carboy's own state":              {"--workspace", h.dir},
			"there is no such wall":                    {"--isolation", "paper"},
			`volume "nothing": not found`:              {"--volume", "nothing:/data"},
			"/proc is the sandbox's own":               {"--mount", h.dir + "/repo:/proc/x"},
			"the process wall runs no command as root": {"--isolation", "process", "--user", "root"},
		} {
			r = h.run(nil, append(append([]string{"agent", "run", "--isolation", wall, "--workspace", filepath.Join(h.dir, "repo"), "--package-version", "9.9.8"}, flags...), "packed", "--", "-p")...)
			if r.code != 125 || !strings.Contains(r.stderr, says) || strings.Contains(r.stderr, "template") {
				t.Errorf("%q: %+v", flags, r)
			}
		}

		// What is in PATH is passed over by a version that is asked for, and a template
		// that was never built leaves nothing.
		h.edit(h.dir, map[string]string{"tools/fakepacked": "#!/bin/sh\necho of PATH\n", "config/carboy/agents/none.toml": strings.ReplaceAll(packagedProvider, "fakepacked@", "nothing@")})
		must(t, os.Chmod(h.dir+"/tools/fakepacked", 0o755))
		for i, e := range h.env {
			if path, ok := strings.CutPrefix(e, "PATH="); ok {
				h.env[i] = "PATH=" + h.dir + "/tools:" + path
			}
		}
		r = h.run(nil, "agent", "run", "--isolation", wall, "--workspace", filepath.Join(h.dir, "repo"), "--package-version", "1.0.0", "packed", "--", "-p", "z")
		if r.code != 0 || r.stdout != "packed -p z\n" || !strings.Contains(r.stderr, "--package-version: fakepacked 1.0.0 of its package is taken, and not "+h.dir+"/tools/fakepacked\n") ||
			!strings.Contains(r.stderr, "packed 1.0 (built from its package)") {
			t.Errorf("a version beside the program of PATH: %+v", r)
		}
		r = h.run(nil, "agent", "run", "--isolation", wall, "--workspace", filepath.Join(h.dir, "repo"), "--package-version", "1.0.0", "none", "--", "-p")
		if r.code != 125 || !strings.Contains(r.stderr, "hint: without --package-version, "+h.dir+"/tools/fakepacked is taken") {
			t.Errorf("a package that there is not: %+v", r)
		}
		if list := h.ok("template", "ls"); strings.Contains(list, "carboy-agent-none") {
			t.Errorf("a template that was never built is left:\n%s", list)
		}
		if list := h.ok("ls", "-q"); strings.Count(list, "\n") != 3 {
			t.Errorf("left over: %q", list)
		}
	})
}
