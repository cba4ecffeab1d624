package policy

// registries are open for reading: what publishes, and what signs in, is not.
// Which registry a tool asks is its configuration's to say; these are the
// public ones that it asks where that says nothing.
func registries() []Preset {
	return []Preset{
		{
			Name:    "crates",
			Summary: "crates.io, for reading: the index, crates and their metadata",
			Rules: []Rule{
				{ID: "crates/files", Hosts: []string{"index.crates.io", "static.crates.io"}, Ports: https, Matches: []Match{{Methods: read}}},
				{ID: "crates/api", Hosts: []string{"crates.io"}, Ports: https, Matches: []Match{{Methods: read, Paths: below("/api/v1/crates")}}},
			},
		},
		{
			Name:    "debian",
			Summary: "Debian's archive, for reading: packages and security updates",
			Rules: []Rule{{
				ID: "debian", Hosts: []string{"deb.debian.org", "security.debian.org"}, Ports: []string{"80", "443"},
				Matches: []Match{{Methods: read, Paths: below("/debian", "/debian-security", "/debian-debug")}},
			}},
		},
		{
			Name:    "go",
			Summary: "Go's module mirror and checksum database, for reading",
			Rules: []Rule{
				{ID: "go/modules", Hosts: []string{"proxy.golang.org"}, Ports: https, Matches: []Match{{Methods: read}}},
				{
					ID: "go/sums", Hosts: []string{"sum.golang.org"}, Ports: https,
					Matches: []Match{{Methods: read, Paths: below("/latest", "/lookup", "/supported", "/tile")}},
				},
				// The mirror answers with a redirect there for large modules.
				{
					ID: "go/storage", Hosts: []string{"storage.googleapis.com"}, Ports: https,
					Matches: []Match{{Methods: read, Paths: below("/proxy-golang-org-prod")}},
				},
			},
		},
		{
			Name:    "npm",
			Summary: "npm's registry, for reading and for the audit that an install makes",
			Rules: []Rule{{
				ID: "npm", Hosts: []string{"registry.npmjs.org"}, Ports: https,
				Matches: []Match{
					// Without a path: npm escapes the slash of a scoped name.
					{Methods: read},
					{Methods: []string{"POST"}, Paths: exactly(
						"/-/npm/v1/security/advisories/bulk", "/-/npm/v1/security/audits", "/-/npm/v1/security/audits/quick")},
				},
			}},
		},
		{
			Name:    "pypi",
			Summary: "PyPI, for reading: the index, metadata and files",
			Rules: []Rule{
				{ID: "pypi", Hosts: []string{"pypi.org"}, Ports: https, Matches: []Match{{Methods: read, Paths: below("/simple", "/pypi")}}},
				{ID: "pypi/files", Hosts: []string{"files.pythonhosted.org"}, Ports: https, Matches: []Match{{Methods: read, Paths: below("/packages")}}},
			},
		},
	}
}
