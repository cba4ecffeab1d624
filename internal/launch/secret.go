package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// namedSecret is what one --secret says.
type namedSecret struct {
	name      string
	env, file string // where its value is; neither: the store, or the variable of that name
	value     *api.SecretValue
}

// parseSecret reads NAME, NAME=env:VAR or NAME=file:PATH. Nothing of what is
// no such thing is repeated: it may be the value.
func parseSecret(s string) (namedSecret, error) {
	name, from, given := strings.Cut(s, "=")
	if !sandbox.ValidSecret(name) {
		return namedSecret{}, usage.Errorf("--secret: that is no name of a secret").
			WithHint("a letter or _, then letters, digits and _: --secret GITHUB_TOKEN")
	}
	if !given {
		return namedSecret{name: name}, nil
	}
	if v, ok := strings.CutPrefix(from, "env:"); ok && v != "" {
		return namedSecret{name: name, env: v}, nil
	}
	if v, ok := strings.CutPrefix(from, "file:"); ok && v != "" {
		return namedSecret{name: name, file: v}, nil
	}
	return namedSecret{}, usage.Errorf("--secret %s: no value can stand there: others could see it", name).
		WithHint("--secret %s=env:VARIABLE, --secret %s=file:PATH, or carboy secret add %s", name, name, name)
}

// maxSecret bounds a secret's value, in bytes.
const maxSecret = 64 << 10

// EnvSecret takes a secret from a variable.
func EnvSecret(flag, name string, lookup func(string) (string, bool)) (*api.SecretValue, error) {
	v, ok := lookup(name)
	if !ok || v == "" {
		if checkEnvName(name) != nil || strings.ContainsAny(name, " \t") {
			return nil, usage.Errorf("%s: that is no name of a variable", flag)
		}
		return nil, usage.Errorf("%s: %s is not set here, or empty", flag, shell.Word(name))
	}
	if len(v) > maxSecret {
		return nil, usage.Errorf("%s: %s is larger than %s", flag, shell.Word(name), term.FormatSize(maxSecret))
	}
	return (*api.SecretValue)(&v), nil
}

// fileSecret takes a secret from a file of the caller's.
func fileSecret(flag, name string) (*api.SecretValue, error) {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return nil, usage.Path(flag, name, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	v, err := ReadSecret(f)
	if err != nil {
		return nil, usage.Path(flag, name, err)
	}
	return v, nil
}

// ReadSecret reads a value to the end of r, and drops one newline there:
// most programs that write files and pipes put one.
func ReadSecret(r io.Reader) (*api.SecretValue, error) {
	if r == nil {
		return nil, errors.New("there is none")
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSecret+2))
	if err != nil {
		return nil, err
	}
	v := strings.TrimSuffix(string(b), "\n")
	switch {
	case v == "":
		return nil, errors.New("it is empty")
	case len(v) > maxSecret:
		return nil, fmt.Errorf("it is larger than %s", term.FormatSize(maxSecret))
	}
	return (*api.SecretValue)(&v), nil
}

// addSecrets adds the secrets to req: those whose value is here with it, for this
// sandbox alone, and the names of those that the daemon keeps.
func (l *Launcher) addSecrets(ctx context.Context, req *Request) error {
	var kept []api.Secret
	if slices.ContainsFunc(req.secrets, func(g namedSecret) bool { return g.env == "" && g.file == "" && g.value == nil }) {
		var err error
		if kept, err = l.Service.Secrets(ctx); err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
			return err
		}
	}
	var secrets []api.SandboxSecret
	for i, g := range req.secrets {
		flag := "--secret " + g.name
		s := api.SandboxSecret{Name: g.name}
		var err error
		switch {
		case g.value != nil: // here, or read before
			s.Value = g.value
		case g.env != "":
			s.Value, err = EnvSecret(flag, g.env, l.LookupEnv)
		case g.file != "":
			s.Value, err = fileSecret(flag, g.file)
		case slices.ContainsFunc(kept, func(k api.Secret) bool { return k.Name == g.name }):
		case l.isSet(g.name):
			s.Value, err = EnvSecret(flag, g.name, l.LookupEnv)
		case req.of != "":
			err = usage.Errorf("%s has the secret %s: none of that name is kept, and no variable of that name is set here", req.of, g.name).
				WithHint("carboy secret add %s", g.name)
		default:
			err = usage.Errorf("%s: no such secret is kept, and no variable of that name is set here", flag).
				WithHint("carboy secret add %s, or --secret %s=env:VARIABLE", g.name, g.name)
		}
		if err != nil {
			return err
		}
		req.secrets[i].value = s.Value // a pipe is read once
		secrets = append(secrets, s)
	}
	req.Secrets = secrets
	return nil
}

func (l *Launcher) isSet(name string) bool {
	v, _ := l.LookupEnv(name)
	return v != ""
}
