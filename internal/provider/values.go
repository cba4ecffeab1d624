package provider

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// maxText bounds what a template becomes, in bytes.
const maxText = 1 << 20

// Values are what the templates of a provider's file know.
type Values struct {
	Home       string // of the user inside
	Workspace  string // where the repository is
	Dir        string // where the program starts: the workspace, or below it
	Config     string // the program's own directory inside
	Program    string // how it is called inside
	Bypass     bool   // it is to ask before nothing
	PromptFile string // of a prompt that is a file
	Version    string // of the package
	Way        string // the first of the ways that were taken

	placeholders map[string]string // by the secret's name; nil: not known yet
	names        []string          // of the secrets that are there
	facts        map[string]string
}

// Fact is something that is known of the login; it must not be "".
func (v *Values) Fact(name string) (string, error) {
	if v.facts[name] == "" {
		return "", fmt.Errorf("fact %s: the login on this machine does not have it", name)
	}
	return v.facts[name], nil
}

// Has reports whether the sandbox was given a secret.
func (v *Values) Has(name string) bool { return slices.Contains(v.names, name) }

// Secret is the placeholder of a secret.
func (v *Values) Secret(name string) (string, error) {
	s, ok := v.placeholders[name]
	if !ok {
		return "", fmt.Errorf("secret %s: the sandbox has none of that name", name)
	}
	return s, nil
}

// text is what a template becomes.
func (v *Values) text(what, s string) (string, error) { return textOf(what, s, v) }

func textOf(what, s string, v any) (string, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	t, err := template.New("").Option("missingkey=error").Funcs(functions).Parse(s)
	if err != nil {
		return "", fmt.Errorf("%s: %s", what, templateError(err))
	}
	if t.Tree != nil { // nil: it is empty
		if err := checkTree(t); err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
	}
	w := &bounded{left: maxText}
	if err := t.Execute(w, v); err != nil {
		return "", fmt.Errorf("%s: %s", what, templateError(err))
	}
	return w.b.String(), nil
}

// templateError leaves out what stands before the message of package template.
func templateError(err error) string {
	s := strings.TrimPrefix(err.Error(), "template: ")
	if _, after, ok := strings.Cut(s, ": executing \"\" at "); ok {
		return after
	}
	return strings.TrimPrefix(s, ":")
}

// bounded holds so much and no more.
type bounded struct {
	b    strings.Builder
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, fmt.Errorf("it becomes longer than %d KiB", maxText>>10)
	}
	w.left -= len(p)
	return w.b.Write(p)
}

func (v *Values) texts(what string, list []string) ([]string, error) {
	out := make([]string, 0, len(list))
	for _, s := range list {
		t, err := v.text(what, s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// place is the absolute path that a template becomes.
func (v *Values) place(what, s string) (string, error) {
	t, err := v.text(what, s)
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(t, "~/"); ok {
		t = path.Join(v.Home, rest)
	}
	if !path.IsAbs(t) || path.Clean(t) != t || strings.ContainsRune(t, 0) {
		return "", fmt.Errorf("%s: %.80q is not a clean absolute path", what, t)
	}
	return t, nil
}

// mode reads an octal mode.
func mode(s string, otherwise fs.FileMode) (fs.FileMode, error) {
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("mode %.20q: not an octal mode, such as 0600", s)
	}
	return fs.FileMode(n), nil
}

// try makes a plan in each of the ways, so that a mistake in a template is one of the file.
func (p *Provider) try() error {
	ways := make([][]*Way, 0, len(p.Access.Ways)+1)
	if p.Access.None || len(p.Access.Ways) == 0 {
		ways = append(ways, nil)
	}
	for i := range p.Access.Ways {
		ways = append(ways, []*Way{&p.Access.Ways[i]})
	}
	for _, w := range ways {
		for _, bypass := range []bool{false, true} {
			in := Inside{Home: "/home/user", Workspace: "/workspace", Program: []string{"/opt/program"}, Bypass: bypass, Ways: w, Placeholders: map[string]string{}, Facts: map[string]string{}}
			for _, one := range w {
				for _, s := range one.Secrets {
					in.Placeholders[s.Name] = "placeholder"
				}
				for _, f := range one.Facts {
					in.Facts[f.Name] = "fact"
				}
			}
			if _, err := p.Plan(&in); err != nil {
				return err
			}
			if _, err := p.Kept(&in); err != nil {
				return err
			}
			if _, err := p.SkillsDir(&in); err != nil {
				return err
			}
			if _, err := p.Argv([]string{"program"}, &in, Start{Resume: true, Remote: true, Prompt: "/prompt"}, nil); err != nil {
				return err
			}
		}
	}
	if _, err := p.Package.Build(p.Package.Version); len(p.Package.Steps) > 0 && err != nil {
		return err
	}
	return nil
}
