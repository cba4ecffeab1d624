package gitremote_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]gitremote.Place{
		"ssh://git@git.example/team/app.git":    {SSH: true, User: "git", Host: "git.example", Port: "22", Path: "/team/app.git"},
		"ssh://git.example:2222/app":            {SSH: true, User: "git", Host: "git.example", Port: "2222", Path: "/app"},
		"ssh://me@git.example/~me/app":          {SSH: true, User: "me", Host: "git.example", Port: "22", Path: "~me/app"},
		"git@github.com:me/app.git":             {SSH: true, User: "git", Host: "github.com", Port: "22", Path: "me/app.git"},
		"https://git.example/app.git":           {Host: "git.example", Port: "443", Path: "/app.git"},
		"https://[2001:db8::1]:8443/app":        {Host: "2001:db8::1", Port: "8443", Path: "/app"},
		"https://git.example:8443/a%20path.git": {Host: "git.example", Port: "8443", Path: "/a path.git"},
	} {
		if got, problem := gitremote.Parse(raw); got != want || problem != "" {
			t.Errorf("%s: %+v, %q", raw, got, problem)
		}
	}
	for _, raw := range []string{
		"", "app", "/srv/app.git", "file:///srv/app.git", "git://git.example/app", "http://git.example/app", "ext::sh -c x", "ssh://git@/app", "ssh://git@git.example",
		"ssh://git@git.example/", "https://me:secret@git.example/app", "https://me@git.example/app", "https://git.example/app?x=1", "https://git.example/app#x",
		"-oProxyCommand=x:app", "ssh://-oProxyCommand=x/app", "git@git.example:-upload", "https://git.example/a\nb",
		"ssh://git@git.example:2222:/app", "ssh://git.example:99999/app", "ssh://git.example:0/app", "ssh://git.example/../app", "git@git.example:2222/srv/app", "git@git.example",
	} {
		if got, problem := gitremote.Parse(raw); problem == "" || strings.Contains(problem, "secret") {
			t.Errorf("%q is read as %+v: %s", raw, got, problem)
		}
	}
}

// TestRepository: by whatever URL a repository is called, it is one.
func TestRepository(t *testing.T) {
	of := func(raw string) string {
		p, problem := gitremote.Parse(raw)
		if problem != "" {
			t.Fatalf("%s: %s", raw, problem)
		}
		return p.Repository()
	}
	one := of("ssh://git@git.example/team/app.git")
	for raw, same := range map[string]bool{
		"git@Git.example:team/app": true, "https://git.example/team/app.git/": true, "ssh://me@git.example:22/team/app": true,
		"ssh://git.example:2222/team/app": false, "https://git.example/team/app2": false, "https://git.example/Team/app": false,
	} {
		if got := of(raw); got == one != same {
			t.Errorf("%s is %s, the other %s", raw, got, one)
		}
	}
}

func TestCheckPattern(t *testing.T) {
	for pattern, good := range map[string]bool{
		"refs/heads/main": true, "refs/heads/v*": true, "refs/heads/release/**": true, "refs/**": true, "refs/tags/**": true,
		"main": false, "": false, "refs/pull/1": false, "refs/heads/**/x": false, "refs/heads/[": false, "**": false,
	} {
		if problem := gitremote.CheckPattern(pattern); problem == "" != good {
			t.Errorf("%q: %q", pattern, problem)
		}
	}
}

// TestSpellings: a repository is the same by all the URLs that people write for it, and no other is meant.
func TestSpellings(t *testing.T) {
	forge := []string{
		"ssh://git@git.example/team/app.git", "ssh://git@git.example/team/app", "git@git.example:team/app.git", "git@git.example:team/app",
		"git@git.example:/team/app.git", "git@git.example:/team/app", "https://git.example/team/app.git", "https://git.example/team/app",
	}
	for raw, want := range map[string][]string{
		"ssh://git@git.example/team/app.git": forge, "git@git.example:team/app": forge, "https://git.example/team/app.git": forge,
		"ssh://me@git.example/srv/app":         {"ssh://me@git.example/srv/app.git", "ssh://me@git.example/srv/app", "me@git.example:srv/app.git", "me@git.example:srv/app", "me@git.example:/srv/app.git", "me@git.example:/srv/app"},
		"ssh://git@git.example:2222/app.git":   {"ssh://git@git.example:2222/app.git", "ssh://git@git.example:2222/app"},
		"https://git.example:8443/app":         {"https://git.example:8443/app.git", "https://git.example:8443/app"},
		"ssh://me@git.example/~/app.git":       {"ssh://me@git.example/~/app.git", "ssh://me@git.example/~/app"},
		"https://git.example/team/app/":        append([]string{"https://git.example/team/app/"}, forge...),
		"ssh://me:secret@git.example/srv/app":  nil,
		"ssh://git@[2001:db8::1]/team/app.git": {"ssh://git@[2001:db8::1]/team/app.git", "ssh://git@[2001:db8::1]/team/app"},
		"https://git.example/a%20b/app.git":    {"https://git.example/a%20b/app.git", "https://git.example/a%20b/app"},
	} {
		got := gitremote.Spellings(raw)
		if len(got) > 0 && got[0] != raw {
			t.Errorf("%s: the first is %s", raw, got[0])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", raw, got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"app": true, "bot-bottle": true, "a": true, "A.b_c-d": true, strings.Repeat("a", 64): true,
		"": false, ".": false, "..": false, "a..b": false, "a/b": false, "app.git": false, "-a": false, "a-": false, "lock": false, "a b": false, "é": false,
		strings.Repeat("a", 65): false,
	} {
		if got := gitremote.ValidName(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestKeys(t *testing.T) {
	const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
	if got := gitremote.Keys("\n " + line + " \n\n" + line); len(got) != 2 || got[0] != line {
		t.Errorf("%q", got)
	}
	// As the forge publishes it.
	if got := gitremote.Fingerprint(line + " a comment"); got != "ssh-ed25519 SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU" {
		t.Errorf("fingerprint %q", got)
	}
	for text, want := range map[string]bool{
		line: true, line + " comment": true,
		"": false, "ssh-ed25519": false, "ssh-rsa " + line[12:]: false, "ssh-ed25519 !": false, "git.example " + line: false, line + strings.Repeat("x", 20<<10): false,
	} {
		if got := gitremote.IsKey(text); got != want {
			t.Errorf("%.40q: %t", text, got)
		}
	}
}
