package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range documents(t) {
		for _, problem := range deadLinks(filepath.Dir(file), read(t, file)) {
			t.Errorf("%s: %s", file, problem)
		}
	}
}

// deadLinks names the relative links of text that lead to no file. Links out
// of the repository are not followed.
func deadLinks(dir, text string) (problems []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(target))); err != nil {
			problems = append(problems, "a dead link: "+m[1])
		}
	}
	return problems
}

// named is a test as documents name it: `internal/tenant/key.TestFile`, with a
// subtest after a slash where one is meant.
var named = regexp.MustCompile("`((?:internal|client|contrib|cmd|test|api)[a-z0-9/-]*)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)((?:/[^`]+)?)`")

func TestNamedTestsExist(t *testing.T) {
	count := 0
	for _, file := range documents(t) {
		text := read(t, file)
		count += len(named.FindAllString(text, -1))
		for _, problem := range missingTests(root, text) {
			t.Errorf("%s: %s", file, problem)
		}
	}
	if count == 0 {
		t.Error("no document names a test")
	}
}

// missingTests lists the tests that text names and dir does not have. A
// subtest is looked for by its words.
func missingTests(dir, text string) (problems []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(m[1]), "*_test.go"))
		if err != nil {
			problems = append(problems, err.Error())
		}
		has := func(file string) bool {
			src, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(src), "func "+m[2]+"(") {
				return false
			}
			sub := strings.TrimPrefix(m[3], "/")
			return sub == "" || strings.Contains(string(src), fmt.Sprintf("%q", sub))
		}
		if !slices.ContainsFunc(files, has) {
			problems = append(problems, "there is no test "+m[0])
		}
	}
	return problems
}

func TestReferencesRefuse(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "internal", "x")
	if err := os.MkdirAll(pkg, 0o700); err != nil {
		t.Fatal(err)
	}
	src := "package x\nfunc TestA(t *testing.T) { t.Run(\"one\", f) }\n"
	if err := os.WriteFile(filepath.Join(pkg, "x_test.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, text   string
		links, tests int
	}{
		{"all-there", "[x](internal/x/x_test.go#L1) `internal/x.TestA` `internal/x.TestA/one`", 0, 0},
		{"dead-link", "[x](internal/y)", 1, 0},
		{"outside", "[x](https://example.com/y) [y](#section)", 0, 0},
		{"no-such-test", "`internal/x.TestB`", 0, 1},
		{"no-such-subtest", "`internal/x.TestA/two`", 0, 1},
		{"no-such-package", "`internal/y.TestA`", 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := deadLinks(dir, tt.text); len(got) != tt.links {
				t.Errorf("deadLinks = %q, want %d", got, tt.links)
			}
			if got := missingTests(dir, tt.text); len(got) != tt.tests {
				t.Errorf("missingTests = %q, want %d", got, tt.tests)
			}
		})
	}
}
