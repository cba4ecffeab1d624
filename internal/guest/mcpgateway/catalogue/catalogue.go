// Package catalogue says which MCP servers a gateway runs: it reads what a
// client asks for, and what the operator has configured. It refuses
// names and fields that it does not know.
package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

const (
	maxConfig  = 1 << 20
	maxServers = 64
	maxCommand = 64 << 10
)

// Server is one to be run.
type Server struct {
	Name    string            // as the client named it
	Repo    string            // OWNER/NAME on GitHub, which it is run in; "": none
	Install string            // a shell's command, run before; "": none
	Run     string            // a shell's command, or
	Argv    []string          // a program and its arguments
	Env     map[string]string // on top of the gateway's own
}

// entry is a server of the catalogue. In Run and Env, {field} stands for what
// the client's configuration has by that name and must have, {field?} for what
// it may have: without it, the argument or variable is left out. An argument
// that is nothing but a field may be a list, and is then as many arguments.
type entry struct {
	Description string            `json:"description,omitempty"`
	Install     string            `json:"install,omitempty"` // a shell's command
	Run         []string          `json:"run"`               // a program and its arguments
	Env         map[string]string `json:"env,omitempty"`
}

// Catalogue has the servers that may be named.
type Catalogue struct {
	Servers map[string]entry `json:"servers"`
}

// Parse reads a catalogue, and refuses what it does not know.
func Parse(data []byte) (Catalogue, error) {
	var c Catalogue
	if err := decode(data, &c); err != nil {
		return Catalogue{}, fmt.Errorf("catalogue: %w", err)
	}
	for name, e := range c.Servers {
		switch {
		case name == "" || strings.HasPrefix(name, githubPrefix) || len(name) > 100:
			return Catalogue{}, fmt.Errorf("catalogue: %.100q can't be a server's name", name)
		case len(e.Run) == 0 || e.Run[0] == "" || field().MatchString(e.Run[0]):
			return Catalogue{}, fmt.Errorf("catalogue: server %s: run: a program and its arguments", name)
		}
	}
	return c, nil
}

const githubPrefix = "github/"

var (
	repository = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)
	})
	field    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)(\??)\}`) })
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
)

// ParseConfig reads what a client gave as --config: an object of servers by
// name. They are returned in the order of their names.
func ParseConfig(data []byte, c Catalogue) ([]Server, error) {
	var raw map[string]json.RawMessage
	if err := decode(data, &raw); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(raw) == 0 {
		return nil, errors.New("config: it names no server")
	}
	if len(raw) > maxServers {
		return nil, fmt.Errorf("config: %d servers are too many; at most %d", len(raw), maxServers)
	}
	var servers []Server
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		parse := c.server
		if strings.HasPrefix(name, githubPrefix) {
			parse = fromGitHub
		}
		s, err := parse(name, raw[name])
		if err != nil {
			return nil, fmt.Errorf("server %.100s: %w", name, err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func fromGitHub(name string, data []byte) (Server, error) {
	var e struct {
		RunCmd     string            `json:"runCmd"`
		InstallCmd string            `json:"installCmd"`
		Envs       map[string]string `json:"envs"`
	}
	if err := decode(data, &e); err != nil {
		return Server{}, err
	}
	s := Server{Name: name, Repo: strings.TrimPrefix(name, githubPrefix), Install: e.InstallCmd, Run: e.RunCmd, Env: e.Envs}
	switch {
	case !repository().MatchString(s.Repo):
		return Server{}, errors.New("not github/OWNER/REPOSITORY")
	case strings.TrimSpace(e.RunCmd) == "":
		return Server{}, errors.New("runCmd: it is missing")
	case len(e.RunCmd) > maxCommand || len(e.InstallCmd) > maxCommand:
		return Server{}, fmt.Errorf("a command longer than %d bytes", maxCommand)
	}
	return s, checkEnv(e.Envs)
}

func checkEnv(env map[string]string) error {
	for k, v := range env {
		if !variable().MatchString(k) || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%.80q: not an environment variable", k)
		}
	}
	return nil
}

// server makes a server of a catalogue's entry and a client's fields.
func (c Catalogue) server(name string, data []byte) (Server, error) {
	e, ok := c.Servers[name]
	if !ok {
		return Server{}, c.Unknown()
	}
	given, err := fields(data)
	if err != nil {
		return Server{}, err
	}
	used := map[string]bool{}
	s := Server{Name: name, Install: e.Install, Env: map[string]string{}}
	for _, arg := range e.Run {
		args, err := expand(arg, given, used)
		if err != nil {
			return Server{}, err
		}
		s.Argv = append(s.Argv, args...)
	}
	for k, v := range e.Env {
		values, err := expand(v, given, used)
		if err != nil {
			return Server{}, err
		}
		if len(values) > 0 {
			s.Env[k] = strings.Join(values, ",")
		}
	}
	for k := range given {
		if !used[k] {
			return Server{}, fmt.Errorf("%.80s: this server has no such field", k)
		}
	}
	return s, checkEnv(s.Env)
}

// Unknown is the error for a name that is not in the catalogue.
func (c Catalogue) Unknown() error {
	names := slices.Sorted(maps.Keys(c.Servers))
	if len(names) == 0 {
		return errors.New("it is not configured here, as no server is: use github/OWNER/REPOSITORY with a runCmd")
	}
	return fmt.Errorf("it is not configured here; there are %s, and github/OWNER/REPOSITORY with a runCmd", strings.Join(names, ", "))
}

// expand puts fields into an argument. None come back where one that may be
// missing is.
func expand(arg string, given map[string]any, used map[string]bool) ([]string, error) {
	var err error
	left := false
	var list []string
	out := field().ReplaceAllStringFunc(arg, func(m string) string {
		name, optional := strings.CutSuffix(m[1:len(m)-1], "?")
		used[name] = true
		v, ok := given[name]
		if !ok {
			if !optional {
				err = fmt.Errorf("%s: it is missing", name)
			}
			left = left || optional
			return ""
		}
		values, terr := texts(v)
		if terr != nil || len(values) != 1 && m != arg {
			err = fmt.Errorf("%s: not a text, a number or a boolean", name)
			return ""
		}
		if m == arg {
			list = values
			return ""
		}
		return values[0]
	})
	switch {
	case err != nil:
		return nil, err
	case left:
		return nil, nil
	case list != nil:
		return list, nil
	}
	return []string{out}, nil
}

// texts is a value as arguments have it.
func texts(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return nil, errors.New("a zero byte")
		}
		return []string{v}, nil
	case bool, json.Number:
		return []string{fmt.Sprint(v)}, nil
	case []any:
		out := []string{}
		for _, e := range v {
			if _, ok := e.([]any); ok {
				return nil, errors.New("a list within a list")
			}
			t, err := texts(e)
			if err != nil {
				return nil, err
			}
			out = append(out, t...)
		}
		return out, nil
	}
	return nil, errors.New("no text")
}

// decode reads one value strictly.
func decode(data []byte, v any) error {
	if len(data) > maxConfig {
		return fmt.Errorf("larger than %d bytes", maxConfig)
	}
	return strict.Unmarshal(data, v)
}

// fields reads an object, its numbers as they were written.
func fields(data []byte) (map[string]any, error) {
	var raw map[string]json.RawMessage
	if err := decode(data, &raw); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for name, text := range raw {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}
