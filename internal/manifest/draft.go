package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
)

// Draft is a bottle and an agent to begin with, as texts of files.
type Draft struct{ Bottle, Agent string }

// DraftOf writes a draft for a provider whose models know the user by those ways; none: by the
// first that a preset has, which is the plainest. Commits are by whom user names.
func DraftOf(p *provider.Provider, ways []*provider.Way, user GitUser) (Draft, error) {
	if all := p.Access.Ways; len(ways) == 0 && len(all) > 0 {
		i := slices.IndexFunc(all, func(w provider.Way) bool { return inPreset(&w) })
		ways = []*provider.Way{&all[max(0, i)]}
	}
	var presets, rules, secrets []string
	for _, w := range ways {
		for _, s := range w.Secrets {
			if !slices.Contains(secrets, s.Name) {
				secrets = append(secrets, s.Name)
			}
		}
		if inPreset(w) {
			if !slices.Contains(presets, w.Preset) {
				presets = append(presets, w.Preset)
			}
			continue
		}
		list, err := w.Policy()
		if err != nil {
			return Draft{}, err
		}
		for i := range list {
			list[i].ID = strings.ReplaceAll(list[i].ID, "/", "-")
			b, err := json.Marshal(list[i])
			if err != nil {
				return Draft{}, err
			}
			rules = append(rules, string(b)) // which is YAML, too
		}
	}
	return Draft{Bottle: draftBottle(p, append(presets, p.Plain.Presets...), rules, secrets, user), Agent: draftAgent(p)}, nil
}

// inPreset reports whether a preset has a place for all of a way's secrets.
func inPreset(w *provider.Way) bool {
	i := slices.IndexFunc(policy.Presets(), func(p policy.Preset) bool { return p.Name == w.Preset })
	if i < 0 {
		return false
	}
	for _, s := range w.Secrets {
		if !slices.ContainsFunc(policy.Presets()[i].Rules, func(r policy.Rule) bool {
			return slices.ContainsFunc(r.Secrets, func(have policy.Secret) bool { return have.Name == s.Name })
		}) {
			return false
		}
	}
	return true
}

func draftBottle(p *provider.Provider, presets, rules, secrets []string, user GitUser) string {
	var b strings.Builder
	fmt.Fprintf(&b, `---
# The wall that %[1]s runs in. carboy manifest show %[1]s says all that comes of it.
#
# extends: base               # a bottle to start from
# isolation: gvisor           # the wall; process is a lighter one
# image: host                 # this machine's programs, or an image such as node:22
policy:
  # What may be reached, and nothing else: carboy policy presets lists these.
  presets: [%[2]s]
`, p.Name, strings.Join(presets, ", "))
	if len(rules) == 0 {
		b.WriteString("  # rules:\n  #   - hosts: [docs.example]\n")
	} else {
		b.WriteString("  rules:\n")
		for _, r := range rules {
			b.WriteString("    - " + r + "\n")
		}
	}
	if len(secrets) > 0 {
		fmt.Fprintf(&b, "# Kept outside: carboy secret add %s, or the variable of that name, or the program's own login.\nsecrets: [%s]\n", secrets[0], strings.Join(secrets, ", "))
	}
	b.WriteString(`# limits: {memory: 4g, cpus: 2}
# caches: [npm]               # of tools, kept from run to run
`)
	b.WriteString(draftUser(user) + mark + "\n")
	return b.String()
}

// draftUser says whom commits are by, or how to say so: git wants a name and an e-mail.
func draftUser(u GitUser) string {
	var p problems
	checkGitUser(u, func(string) Place { return Place{} }, &p)
	if u.Name == "" || u.Email == "" || p.any() {
		return "# Whom commits are by: git makes none without a name and an e-mail.\n# git_user: {name: Robot, email: robot@example.com}\n"
	}
	name, _ := json.Marshal(u.Name) // a text can be written, and is YAML, too
	email, _ := json.Marshal(u.Email)
	return fmt.Sprintf("# Whom commits are by, as git's configuration here says it.\ngit_user: {name: %s, email: %s}\n", name, email)
}

func draftAgent(p *provider.Provider) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\n# %s in its bottle: carboy up %s, in a repository.\nbottle: %s\nprovider: %s\n", p.Title, p.Name, p.Name, p.Name)
	if p.Config.Skills != "" {
		b.WriteString("# skills: [review]            # carboy session skill ls lists them\n")
	}
	b.WriteString("# files: [{path: ~/notes.md, content: \"read me\"}]\n")
	if p.Run.PromptMode != "" {
		b.WriteString("# Below the dashes stands what it is told besides your task.\n")
	}
	b.WriteString("---\n")
	return b.String()
}
