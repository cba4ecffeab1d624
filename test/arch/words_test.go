package arch

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// marks are what unfinished work leaves behind, put together here so that
// this file holds none of them.
var (
	markWords = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}
	marks     = regexp.MustCompile(`\b(` + strings.Join(markWords, "|") + `)\b`)
)

// hosts are names of registries. Which one a machine uses is the machine's to
// say: a name in the tree would bind everybody to one of them.
var hosts = []string{
	"proxy." + "golang.org", "sum." + "golang.org", "go" + "proxy.io", "goproxy." + "cn",
	"registry." + "npmjs.org", "registry." + "yarnpkg.com", "registry." + "npmmirror.com",
	"deb." + "debian.org", "security." + "debian.org", "snapshot." + "debian.org",
}

// namesRegistries are the files that have to name registries, and why.
var namesRegistries = map[string]string{
	"internal/policy/preset_registries.go": "says which hosts a preset opens; nothing is fetched from there",
}

func TestNothingIsLeftUnfinished(t *testing.T) {
	for _, s := range tree(t) {
		if s.path == "LICENSE" || path.Base(s.path) == "package-lock.json" {
			continue // others' words; integrity sums are random letters
		}
		for _, problem := range found(s, mark) {
			t.Error(problem)
		}
	}
}

func TestNoRegistryIsNamed(t *testing.T) {
	for _, s := range tree(t) {
		if _, ok := namesRegistries[s.path]; ok {
			continue
		}
		for _, problem := range found(s, registry) {
			t.Error(problem)
		}
	}
}

func mark(line string) string {
	if !has(line, markWords) {
		return ""
	}
	return marks.FindString(line)
}

func registry(line string) string {
	line = strings.ToLower(line)
	for _, h := range hosts {
		if strings.Contains(line, h) {
			return h
		}
	}
	return ""
}

// found lists the lines of a text file in which match finds something.
func found(s source, match func(line string) string) (problems []string) {
	if !utf8.Valid(s.text) {
		return nil
	}
	n := 0
	for line := range strings.Lines(string(s.text)) {
		n++
		if m := match(line); m != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: %s", s.path, n, m))
		}
	}
	return problems
}

func TestWordsRefuse(t *testing.T) {
	tests := []struct {
		name, text string
		match      func(string) string
		want       int
	}{
		{"mark", "// " + "TO" + "DO: later\n// " + "FIX" + "ME", mark, 2},
		{"no-mark", "mastodon, hackney, toDo, " + "TO" + "DOS", mark, 0},
		{"host", "GOPROXY=https://Proxy." + "golang.org,direct", registry, 1},
		{"no-host", "https://go.dev", registry, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := found(source{"x", []byte(tt.text)}, tt.match); len(got) != tt.want {
				t.Errorf("found %q, want %d", got, tt.want)
			}
		})
	}
}
