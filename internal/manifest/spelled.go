package manifest

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// spell finds by which URLs git asks the gate for each remote: its own, and others that mean the same repository, but
// for those that could mean another remote's. Git goes by how a URL begins, so where the sandbox reaches a host by
// itself, an https URL without .git is left to that: app would take app-web with it.
func (m *Manifest) spell(p *Plan) {
	said := map[string]int{}
	for i := range p.Remotes {
		for _, url := range gitremote.Spellings(p.Remotes[i].URL) {
			said[url]++
		}
	}
	for i := range p.Remotes {
		said[p.Remotes[i].URL]++ // which is that remote's alone
	}
	for i := range p.Remotes {
		r := &p.Remotes[i]
		open := m.reaches(p.Create.Policy, r.Host)
		r.URLs = slices.DeleteFunc(gitremote.Spellings(r.URL), func(url string) bool {
			loose := strings.HasPrefix(url, "https:") && !strings.HasSuffix(url, ".git")
			return url != r.URL && (said[url] > 1 || loose && open)
		})
	}
}

// reaches reports whether a sandbox gets to a host by a policy.
func (m *Manifest) reaches(p *policy.Policy, host string) bool {
	if p == nil {
		return false
	}
	set, err := policy.Compile(*p, m.reach.secrets)
	return err == nil && set.Name(host).Allowed() // it compiled before
}
