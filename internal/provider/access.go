package provider

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// expiresInToken says that a token's own claims hold its end.
const expiresInToken = "jwt"

// maxCredentials bounds a file with credentials, in bytes.
const maxCredentials = 1 << 20

// Policy are the rules that a way adds, with its secrets at their places.
func (w *Way) Policy() ([]policy.Rule, error) {
	rules := w.rules
	if w.Preset != "" {
		i := slices.IndexFunc(policy.Presets(), func(p policy.Preset) bool { return p.Name == w.Preset })
		if i < 0 {
			return nil, fmt.Errorf("%.60q is no preset", w.Preset)
		}
		rules = policy.Presets()[i].Rules
	}
	rules = policy.Clone(&policy.Policy{Rules: rules}).Rules
	for i := range rules {
		// A user may allow the preset, too: its rule is another.
		rules[i].ID = w.agent + "/" + rules[i].ID
		rules[i].Secrets = nil
		for _, s := range w.Secrets {
			rules[i].Secrets = append(rules[i].Secrets, policy.Secret{Name: s.Name, Header: s.Header, Scheme: s.Scheme, Optional: s.Optional})
		}
	}
	return rules, nil
}

// Base is the policy of a sandbox: what the provider's file says, with the rules of the
// ways that were taken. It is nil where that is nothing: such a sandbox needs no link,
// which not everybody may make.
func (p *Provider) Base(rules []policy.Rule) *policy.Policy {
	if len(p.Plain.Presets)+len(p.Plain.rules)+len(rules) == 0 {
		return nil
	}
	return policy.Clone(&policy.Policy{Presets: p.Plain.Presets, Rules: slices.Concat(rules, p.Plain.rules)})
}

// Outside is what is known of a user: what credentials they have, and their home.
type Outside struct {
	Home      string
	LookupEnv func(string) (string, bool)
	Given     []string // names of secrets that flags say
	Stored    []string // names of those that are kept
	Now       time.Time
}

func (o *Outside) variable(name string) string {
	v, _ := o.LookupEnv(name)
	return v
}

// Found is a secret and where its value is. One whose Value is nil is given or kept.
type Found struct {
	Name  string
	Value *string // never shown
	From  string  // for people: "$NAME", "carboy secret", "--secret", or a path
}

// Grant is what a sandbox gets so that a model knows its user.
type Grant struct {
	Ways    []*Way
	Secrets []Found
	Facts   map[string]string
}

// Rules are those of all its ways.
func (g *Grant) Rules() (rules []policy.Rule, err error) {
	for _, w := range g.Ways {
		more, err := w.Policy()
		if err != nil {
			return nil, err
		}
		rules = append(rules, more...)
	}
	return rules, nil
}

// Reaches is how the first line calls where its ways lead.
func (g *Grant) Reaches() (names []string) {
	for _, w := range g.Ways {
		if !slices.Contains(names, w.Reaches) {
			names = append(names, w.Reaches)
		}
	}
	return names
}

// Grant finds the user's credentials: of the first way for which there are any, or of
// all. None is an error where the program needs one.
func (p *Provider) Grant(o *Outside) (*Grant, error) {
	g := &Grant{Facts: map[string]string{}}
	var over error // of a login that is not good any more
	for i := range p.Access.Ways {
		w := &p.Access.Ways[i]
		found, err := w.find(p.Name, o)
		if err != nil {
			over = err
			continue
		}
		if found == nil {
			continue
		}
		g.Ways = append(g.Ways, w)
		w.facts(o, g.Facts)
		for _, f := range found {
			if !slices.ContainsFunc(g.Secrets, func(have Found) bool { return have.Name == f.Name }) {
				g.Secrets = append(g.Secrets, f)
			}
		}
		if !p.Access.All {
			break
		}
	}
	if len(g.Ways) > 0 || p.Access.None || len(p.Access.Ways) == 0 {
		return g, nil
	}
	if over != nil {
		return nil, over
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "no key for %s: %s", p.Name, p.Access.Hint)
}

// maxFact bounds a fact, in bytes.
const maxFact = 1 << 10

// FactsOf are those of ways whose secrets a sandbox has already.
func FactsOf(ways []*Way, o *Outside) map[string]string {
	facts := map[string]string{}
	for _, w := range ways {
		w.facts(o, facts)
	}
	return facts
}

// facts adds what is known of a login to facts.
func (w *Way) facts(o *Outside, facts map[string]string) {
	for _, f := range w.Facts {
		facts[f.Name] = f.Default
		path, ok := o.expand(f.File)
		if !ok {
			continue
		}
		doc, err := readJSON(path)
		if err != nil {
			continue // there is no such login
		}
		v := at(doc, f.Pointer)
		if token, ok := v.(string); ok && f.Claim != "" {
			v = at(claims(token), f.Claim)
		}
		if s, ok := v.(string); ok && s != "" && len(s) <= maxFact {
			facts[f.Name] = s
		}
	}
}

// claims are those of a token; nil where it has none. Its signature is not looked at.
func claims(token string) any {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c any
	if err != nil || json.Unmarshal(b, &c) != nil {
		return nil
	}
	return c
}

// find returns the secrets of a way; nil where its first is not there.
func (w *Way) find(agent string, o *Outside) ([]Found, error) {
	var all []Found
	for i := range w.Secrets {
		s := &w.Secrets[i]
		f, err := s.find(agent, o)
		switch {
		case err != nil:
			return nil, err
		case f != nil:
			all = append(all, *f)
		case !s.Optional:
			return nil, nil
		}
	}
	return all, nil
}

// find looks where a secret may be, what was asked for first.
func (s *Secret) find(agent string, o *Outside) (*Found, error) {
	if slices.Contains(o.Given, s.Name) {
		return &Found{Name: s.Name, From: "--secret"}, nil
	}
	if slices.Contains(o.Stored, s.Name) {
		return &Found{Name: s.Name, From: "carboy secret"}, nil
	}
	for _, name := range append([]string{s.Name}, s.Variables...) {
		if v := o.variable(name); v != "" {
			return &Found{Name: s.Name, Value: &v, From: "$" + name}, nil
		}
	}
	if s.File == "" {
		return nil, nil
	}
	path, ok := o.expand(s.File)
	if !ok {
		return nil, nil
	}
	doc, err := readJSON(path)
	if err != nil {
		return nil, nil //nolint:nilerr // it is not there, or no such file: nobody has logged in
	}
	v, _ := at(doc, s.Pointer).(string)
	if v == "" {
		return nil, nil
	}
	if end := s.end(doc, v); !end.IsZero() && !o.Now.Before(end) {
		return nil, sandbox.Errorf(sandbox.Invalid, "no key for %s: the login of %s was good until %s", agent, path, end.Local().Format("2006-01-02 15:04")).
			WithHint("%s", s.Renew)
	}
	return &Found{Name: s.Name, Value: &v, From: path}, nil
}

// end is until when a credential is good; zero where that is not known.
func (s *Secret) end(doc any, value string) time.Time {
	if s.Expires == expiresInToken {
		exp, _ := at(claims(value), "/exp").(float64)
		if exp <= 0 || exp > 1e11 {
			return time.Time{}
		}
		return time.Unix(int64(exp), 0)
	}
	if n, ok := at(doc, s.Expires).(float64); ok && n > 0 && n < 1e14 {
		return time.UnixMilli(int64(n))
	}
	return time.Time{}
}

func readJSON(path string) (any, error) {
	f, err := beneath.OpenInput(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxCredentials))
	if err != nil {
		return nil, err
	}
	var doc any
	return doc, json.Unmarshal(b, &doc)
}

// at is what a JSON pointer leads to; nil where it leads nowhere.
func at(doc any, pointer string) any {
	if pointer == "" {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch in := doc.(type) {
		case map[string]any:
			doc = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			doc = in[i]
		default:
			return nil
		}
	}
	return doc
}
