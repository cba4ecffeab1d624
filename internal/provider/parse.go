package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/near"
)

// Bounds of a file.
const (
	maxFile  = 64 << 10 // bytes
	maxItems = 100      // of each list
	maxDepth = 64       // of what is nested in it
)

var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`) })

// Parse reads what a file says of the agent name, and tries each of its texts.
func Parse(name string, b []byte) (*Provider, error) {
	p, err := Read(name, b)
	if err != nil {
		return nil, err
	}
	if err := p.try(); err != nil {
		return nil, placed(b, err)
	}
	return p, nil
}

// Read is Parse for a file that is used once, and may be anybody's: its texts are left alone until
// they are needed, each once.
func Read(name string, b []byte) (*Provider, error) {
	if !validName().MatchString(name) {
		return nil, fmt.Errorf("%.60q is not a name for an agent: use a-z, 0-9 and -, a letter first, at most 40", name)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("larger than %d KiB", maxFile>>10)
	}
	if nested(b) > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	p := &Provider{Name: name}
	dec := toml.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		return nil, tomlError(err)
	}
	p.Name = name
	p.Config.Dir = strings.TrimPrefix(p.Config.Dir, "~/") // it is below the home in any case
	if err := p.check(); err != nil {
		return nil, placed(b, err)
	}
	return p, nil
}

// nested is at most how deep anything in a TOML file can be.
func nested(b []byte) (most int) {
	depth := 0
	for _, c := range b {
		switch c {
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return most
}

// tomlError says where a mistake is, in one line.
func tomlError(err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		line, _ := e.Position()
		return &unknownKey{line, strings.Join(e.Key(), "."), nearest(reflect.TypeFor[Provider](), e.Key())}
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := e.Position()
		return fmt.Errorf("line %d: %s", line, strings.TrimPrefix(e.Error(), "toml: "))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "toml: "))
}

// unknownKey is a key that there is not, and which was meant.
type unknownKey struct {
	line      int
	key, near string
}

// Error names it, and where it is.
func (e *unknownKey) Error() string {
	return fmt.Sprintf("line %d: %s is not known here", e.line, e.key)
}

// nearest is the field that is meant by a key, with the way to it; "": it is like none.
func nearest(t reflect.Type, key []string) string {
	for at, word := range key {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return ""
		}
		var names []string
		found := false
		in := t
		for i := range in.NumField() {
			name, _, _ := strings.Cut(in.Field(i).Tag.Get("toml"), ",")
			if name == "" || name == "-" {
				continue
			}
			names = append(names, name)
			if name == word {
				t, found = in.Field(i).Type, true
			}
		}
		if !found {
			n := near.Of(word, names)
			if n == "" {
				return ""
			}
			return strings.Join(append(slices.Clone(key[:at]), n), ".")
		}
	}
	return ""
}

// check refuses what could not be done later.
func (p *Provider) check() error {
	if strings.ContainsAny(p.Program, "/ \t\n") {
		return fmt.Errorf("program: %.60q is no name of a program", p.Program)
	}
	if m := p.Run.PromptMode; m != "" && m != AppendFile && m != ReadFile {
		return fmt.Errorf("run.prompt_mode: %.60q is none: %s or %s", m, AppendFile, ReadFile)
	}
	if (p.Run.PromptMode == "") != (len(p.Run.Prompt) == 0) {
		return errors.New("run: prompt and prompt_mode go together")
	}
	if d := p.Config.Dir; d != "" && (path.IsAbs(d) || d == "~" || !localPath(d)) {
		return fmt.Errorf("config.dir: %.60q is not a directory below the home", d)
	}
	for _, size := range []int{len(p.Env), len(p.Dirs), len(p.Files), len(p.PreCopy), len(p.Verify), len(p.Access.Ways), len(p.Install.Paths), len(p.Install.Trees), len(p.Package.Steps)} {
		if size > maxItems {
			return fmt.Errorf("a list has more than %d entries", maxItems)
		}
	}
	if err := p.Package.check(); err != nil {
		return err
	}
	if err := p.checkReach(); err != nil {
		return err
	}
	return p.checkSteps()
}

// localPath reports whether a relative path stays below where it begins.
func localPath(s string) bool {
	return path.Clean(s) == s && s != ".." && !strings.HasPrefix(s, "../")
}

func (k *Pack) check() error {
	if len(k.Steps) == 0 {
		return nil
	}
	switch {
	case k.Version == "" || k.Image == "" || k.Needs == "" || k.Path == "":
		return errors.New("package: version, image, needs and path go with steps")
	case path.IsAbs(k.Path) || !localPath(k.Path):
		return fmt.Errorf("package.path: %.60q does not stay below the directory of the package", k.Path)
	}
	return CheckVersion(k.Version)
}

// CheckVersion refuses a version that a step's shell could read as something else.
func CheckVersion(v string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_", r)
	}
	if v == "" || len(v) > 60 || strings.ContainsFunc(v, bad) || v[0] == '-' || v[0] == '.' {
		return fmt.Errorf("%.60q is not a version", v)
	}
	return nil
}

// checkReach reads the rules, and tries all that may come together.
func (p *Provider) checkReach() (err error) {
	if p.Plain.rules, err = readRules("reach.rule", p.Plain.Rule); err != nil {
		return err
	}
	var names []string
	for i := range p.Access.Ways {
		w := &p.Access.Ways[i]
		switch {
		case w.Name == "" || w.Reaches == "":
			return fmt.Errorf("access.way %d: it needs a name and says what it reaches", i+1)
		case slices.Contains(names, w.Name):
			return fmt.Errorf("access.way: %.60q is there twice", w.Name)
		case (w.Preset == "") == (len(w.Rule) == 0):
			return fmt.Errorf("access.way %s: it has a preset, or rules", w.Name)
		case len(w.Secrets) == 0 || w.Secrets[0].Optional:
			return fmt.Errorf("access.way %s: its first secret is the one that it is about", w.Name)
		case slices.ContainsFunc(w.Refuses, func(n int) bool { return n < 400 || n > 499 }):
			return fmt.Errorf("access.way %s: refuses: a status that refuses is one of 400 to 499", w.Name)
		}
		names = append(names, w.Name)
		w.agent = p.Name
		if w.rules, err = readRules("access.way "+w.Name, w.Rule); err != nil {
			return err
		}
		for j := range w.Secrets {
			if err := w.Secrets[j].check(); err != nil {
				return fmt.Errorf("access.way %s: %w", w.Name, err)
			}
		}
		for _, f := range w.Facts {
			if f.Name == "" || f.File == "" || !strings.HasPrefix(f.Pointer, "/") || f.Claim != "" && !strings.HasPrefix(f.Claim, "/") {
				return fmt.Errorf("access.way %s: fact %.60q: it needs a name, a file and JSON pointers", w.Name, f.Name)
			}
		}
		if err := w.tryPolicy(); err != nil {
			return fmt.Errorf("access.way %s: %w", w.Name, err)
		}
	}
	plain := policy.Policy{Presets: p.Plain.Presets, Rules: p.Plain.rules}
	if _, err := policy.Compile(plain, nil); err != nil {
		return fmt.Errorf("reach: %w", err)
	}
	return nil
}

func (s *Secret) check() error {
	switch {
	case !sandbox.ValidSecret(s.Name):
		return fmt.Errorf("secret: %.60q is no name of a secret", s.Name)
	case s.Header == "":
		return fmt.Errorf("secret %s: it names no header", s.Name)
	case (s.File == "") != (s.Pointer == ""):
		return fmt.Errorf("secret %s: file and pointer go together", s.Name)
	case s.Pointer != "" && !strings.HasPrefix(s.Pointer, "/"):
		return fmt.Errorf("secret %s: pointer: %.60q is no JSON pointer", s.Name, s.Pointer)
	case s.Expires != "" && s.Expires != expiresInToken && !strings.HasPrefix(s.Expires, "/"):
		return fmt.Errorf("secret %s: expires: %.60q is neither a JSON pointer nor %s", s.Name, s.Expires, expiresInToken)
	}
	return nil
}

// readRules reads rules as a policy's file has them.
func readRules(what string, rules []map[string]any) ([]policy.Rule, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	p, err := policy.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return p.Rules, nil
}

func (w *Way) tryPolicy() error {
	names := make([]string, len(w.Secrets))
	for i := range w.Secrets {
		names[i] = w.Secrets[i].Name
	}
	rules, err := w.Policy()
	if err != nil {
		return err
	}
	_, err = policy.Compile(policy.Policy{Rules: rules}, names)
	return err
}

// checkSteps wants a text for each thing that can fail, and ways that there are.
func (p *Provider) checkSteps() error {
	known := func(way string) bool {
		return way == "" || slices.ContainsFunc(p.Access.Ways, func(w Way) bool { return w.Name == way })
	}
	for _, d := range p.Dirs {
		if d.Path == "" || d.Error == "" || badMode(d.Mode) {
			return fmt.Errorf("dir %.60q: it needs a path, an error and, if any, an octal mode", d.Path)
		}
	}
	for _, f := range p.Files {
		if f.Path == "" || f.Error == "" || badMode(f.Mode) || !known(f.Way) {
			return fmt.Errorf("file %.60q: it needs a path, an error, a way that there is and, if any, an octal mode", f.Path)
		}
	}
	for _, c := range slices.Concat(p.PreCopy, p.Verify) {
		if len(c.Argv) == 0 || c.Error == "" || !known(c.Way) {
			return fmt.Errorf("command %.60q: it needs an argv, an error and a way that there is", strings.Join(c.Argv, " "))
		}
	}
	return nil
}

func badMode(s string) bool { _, err := mode(s, 0); return err != nil }
