// Package cache has the caches that a build needs, as data: for each tool the
// variables by which it keeps what it downloads and compiles in a directory, below
// one that a sandbox shows.
//
// It refuses tools that it does not know. It makes nothing and reads nothing.
package cache

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Dir is where a sandbox shows its caches.
const Dir = "/var/cache/carboy"

// Tool is one whose cache can be kept.
type Tool struct {
	Name string
	Does string // what is kept, in a few words
	// Env are its variables. A value that begins with a slash is a directory, and
	// stands below Dir; in another, "%" stands for Dir.
	env map[string]string
}

// tools are sorted by their names.
var tools = []Tool{
	{"cargo", "crates and their index", map[string]string{"CARGO_HOME": "/cargo"}},
	{"go", "modules and what was compiled", map[string]string{"GOMODCACHE": "/go/mod", "GOCACHE": "/go/build"}},
	{"gradle", "artifacts, wrappers and builds", map[string]string{"GRADLE_USER_HOME": "/gradle"}},
	{"maven", "artifacts", map[string]string{"MAVEN_OPTS": "-Dmaven.repo.local=%/maven"}},
	{"npm", "packages", map[string]string{"npm_config_cache": "/npm"}},
	{"pip", "packages and wheels", map[string]string{"PIP_CACHE_DIR": "/pip"}},
	{"pnpm", "packages", map[string]string{"npm_config_store_dir": "/pnpm", "pnpm_config_store_dir": "/pnpm"}},
	{"uv", "packages and wheels", map[string]string{"UV_CACHE_DIR": "/uv", "UV_LINK_MODE": "copy"}},
	{"yarn", "packages", map[string]string{"YARN_CACHE_FOLDER": "/yarn/v1", "YARN_GLOBAL_FOLDER": "/yarn/berry"}},
}

// Names returns the names of all tools, sorted.
func Names() []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

// Env returns the variables of the tool with that name, and whether there is one.
func Env(name string) (env map[string]string, known bool) {
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return nil, false
	}
	env = make(map[string]string, len(tools[i].env))
	for k, v := range tools[i].env {
		if strings.HasPrefix(v, "/") {
			v = "%" + v
		}
		env[k] = strings.ReplaceAll(v, "%", Dir)
	}
	return env, true
}

// An Error says that a name is no tool's, or is there twice.
type Error struct{ Name, Why string }

// Error says which name.
func (e *Error) Error() string { return "cache " + term.Escape(e.Name) + ": " + e.Why }

// Hint is the names that there are.
func (e *Error) Hint() string { return strings.Join(Names(), ", ") }

// Check refuses names that are no tool's, and those that are there twice.
func Check(names []string) error {
	for i, n := range names {
		if len(n) > 64 {
			n = n[:64]
		}
		if !slices.Contains(Names(), n) {
			return &Error{n, "there is no such cache"}
		}
		if slices.Contains(names[:i], n) {
			return &Error{n, "it is there twice"}
		}
	}
	return nil
}
