package cli

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/shell"
	"github.com/carboy-sandbox/carboy/internal/term"
)

// maxPolicy bounds a file with a policy, in bytes.
const maxPolicy = 1 << 20

// netFlags are the flags that say what a sandbox may reach.
type netFlags struct {
	network string
	allow   []string
	policy  string
	secrets []string

	given []givenSecret // parsed from secrets
}

// givenSecret is what one --secret says.
type givenSecret struct {
	name      string
	env, file string // where its value is; neither: the store, or the variable of that name
}

func (f *netFlags) add(fs *pflag.FlagSet) {
	fs.Var(choiceValue{&f.network, []string{sandbox.NetworkOff, sandbox.NetworkOn}}, "network", "`NETWORK` off, or on: the public internet"+isDefault("off, or what --allow and --policy say"))
	fs.StringArrayVar(&f.allow, "allow", nil, "`WHAT` let it reach that: a preset, host, address or range; see carboy policy presets")
	fs.StringVar(&f.policy, "policy", "", "`FILE` let it reach what the policy in FILE says")
	fs.StringArrayVar(&f.secrets, "secret", nil, "`NAME[=FROM]` let it use a secret where a rule says; the value stays outside")
}

// request fills in what the flags say, and checks it as the daemon will: a
// mistake is told before anything is started. note tells what was not taken
// over from a file in another form.
func (f *netFlags) request(req *api.CreateRequest, note func(string)) error {
	if f.network == sandbox.NetworkOff && (len(f.allow) > 0 || f.policy != "" || len(f.secrets) > 0) {
		return usage.Errorf("--network off can't go with --allow, --policy or --secret").WithHint("leave out --network")
	}
	p, err := loadPolicy(f.policy, f.allow, note)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(f.secrets))
	f.given = nil
	for _, s := range f.secrets {
		g, err := parseSecret(s)
		if err != nil {
			return err
		}
		if slices.Contains(names, g.name) {
			return usage.Errorf("--secret: %s was given twice", g.name)
		}
		names = append(names, g.name)
		f.given = append(f.given, g)
	}
	network, p, err := sandbox.ResolveNetwork(f.network, p)
	if err != nil {
		return err
	}
	if err := sandbox.CheckPolicy(p, names); err != nil {
		return err
	}
	if p == nil {
		req.Network = f.network
		return nil
	}
	req.Network, req.Policy = network, p
	return nil
}

// loadPolicy reads --policy and adds what --allow says; nil where there is
// neither.
func loadPolicy(file string, allow []string, note func(string)) (*policy.Policy, error) {
	if file == "" && len(allow) == 0 {
		return nil, nil
	}
	p := policy.Policy{}
	if file != "" {
		b, err := readPolicyFile("--policy "+shell.Word(file), file)
		if err != nil {
			return nil, err
		}
		var notes []policy.Note
		if p, notes, err = parsePolicy(b); err != nil {
			return nil, sandbox.PolicyError("--policy "+shell.Word(file), err)
		}
		for _, n := range notes {
			note("--policy " + shell.Word(file) + ": " + n.String())
		}
	}
	for _, arg := range allow {
		rules, err := policy.ParseAllow(arg)
		if err != nil {
			return nil, sandbox.PolicyError("", err) // it says which
		}
		p = policy.With(p, rules...)
	}
	return &p, nil
}

func readPolicyFile(what, name string) ([]byte, error) {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return nil, usage.Path(what, "", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return readPolicy(what, f)
}

func readPolicy(what string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err != nil {
		return nil, usage.Errorf("%s: %v", what, usage.Pathless(err))
	}
	if len(b) > maxPolicy {
		return nil, usage.Errorf("%s: larger than %s", what, term.FormatSize(maxPolicy))
	}
	return b, nil
}

// parsePolicy reads a policy, or settings of Anthropic's sandbox-runtime.
func parsePolicy(b []byte) (policy.Policy, []policy.Note, error) {
	if policy.IsSandboxRuntime(b) {
		return policy.FromSandboxRuntime(b)
	}
	p, err := policy.Parse(b)
	return p, nil, err
}

// parseSecret reads NAME, NAME=env:VAR or NAME=file:PATH. Nothing of what is
// no such thing is repeated: it may be the value.
func parseSecret(s string) (givenSecret, error) {
	name, from, given := strings.Cut(s, "=")
	if !sandbox.ValidSecret(name) {
		return givenSecret{}, usage.Errorf("--secret: that is no name of a secret").
			WithHint("a letter or _, then letters, digits and _: --secret GITHUB_TOKEN")
	}
	if !given {
		return givenSecret{name: name}, nil
	}
	if v, ok := strings.CutPrefix(from, "env:"); ok && v != "" {
		return givenSecret{name: name, env: v}, nil
	}
	if v, ok := strings.CutPrefix(from, "file:"); ok && v != "" {
		return givenSecret{name: name, file: v}, nil
	}
	return givenSecret{}, usage.Errorf("--secret %s: no value can stand there: others could see it", name).
		WithHint("--secret %s=env:VARIABLE, --secret %s=file:PATH, or carboy secret add %s", name, name, name)
}

// resolve adds the secrets to req: those whose value is here with it, for this
// sandbox alone, and the names of those that the daemon keeps.
func (f *netFlags) resolve(ctx context.Context, a *app, svc Service, req *api.CreateRequest) error {
	var kept []api.Secret
	if slices.ContainsFunc(f.given, func(g givenSecret) bool { return g.env == "" && g.file == "" }) {
		var err error
		if kept, err = svc.Secrets(ctx); err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
			return err
		}
	}
	req.Secrets = nil
	for _, g := range f.given {
		flag := "--secret " + g.name
		s := api.SandboxSecret{Name: g.name}
		var err error
		switch {
		case g.env != "":
			s.Value, err = envSecret(flag, g.env, a.LookupEnv)
		case g.file != "":
			s.Value, err = fileSecret(flag, g.file)
		case slices.ContainsFunc(kept, func(k api.Secret) bool { return k.Name == g.name }):
		case a.Getenv(g.name) != "":
			s.Value, err = envSecret(flag, g.name, a.LookupEnv)
		default:
			err = usage.Errorf("%s: no such secret is kept, and no variable of that name is set here", flag).
				WithHint("carboy secret add %s, or --secret %s=env:VARIABLE", g.name, g.name)
		}
		if err != nil {
			return err
		}
		req.Secrets = append(req.Secrets, s)
	}
	return nil
}
