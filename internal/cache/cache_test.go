package cache_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cache"
)

// TestTools: what tools keep stands below one directory, and no two share a place or
// a variable with another value.
func TestTools(t *testing.T) {
	names := cache.Names()
	if !slices.IsSorted(names) {
		t.Errorf("names %q are not sorted", names)
	}
	name := regexp.MustCompile(`^[A-Za-z_]+$`)
	seen := map[string]string{}
	for _, tool := range names {
		env, ok := cache.Env(tool)
		if !ok || len(env) == 0 {
			t.Errorf("%s has no variables", tool)
		}
		for k, v := range env {
			if !name.MatchString(k) || strings.Contains(v, "%") {
				t.Errorf("%s: %s=%s", tool, k, v)
			}
			if strings.Contains(v, "/") && !strings.Contains(v, cache.Dir+"/"+tool) {
				t.Errorf("%s: %s=%s is not below %s/%s", tool, k, v, cache.Dir, tool)
			}
			if other := seen[k]; other != "" {
				t.Errorf("%s and %s both set %s", other, tool, k)
			}
			seen[k] = tool
		}
	}
	if _, ok := cache.Env("make"); ok {
		t.Error("make has a cache")
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		names []string
		want  string
	}{
		"none":     {},
		"all":      {names: cache.Names()},
		"unknown":  {names: []string{"go", "goo"}, want: "cache goo: there is no such cache"},
		"twice":    {names: []string{"go", "npm", "go"}, want: "cache go: it is there twice"},
		"empty":    {names: []string{""}, want: "cache : there is no such cache"},
		"escaped":  {names: []string{"\x1b["}, want: `cache \x1b[: there is no such cache`},
		"bounded":  {names: []string{strings.Repeat("x", 1<<20)}, want: "cache " + strings.Repeat("x", 64) + ": there is no such cache"},
		"a-prefix": {names: []string{"g"}, want: "cache g: there is no such cache"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := cache.Check(tt.names); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Check = %q, want %q", got, tt.want)
			}
		})
	}
}
