package manifest

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// static is the provider of a key that is a file.
const static = "static"

var keyProviders = []string{static}

var (
	remoteName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) })
	scpLike    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:([\w.-]+)@)?([\w][\w.-]*):([^:]+)$`) })
)

// address is where the URL of a remote leads.
type address struct {
	ssh              bool
	user, host, port string
}

const urlHint = "ssh://git@host/path, git@host:path or https://host/path"

// parseURL reads a URL as git has it; problem says what is wrong with it. One that may
// hold a password is not repeated.
func parseURL(raw string) (a address, problem string) {
	if m := scpLike().FindStringSubmatch(raw); m != nil && !strings.Contains(raw, "://") {
		a = address{ssh: true, user: m[1], host: m[2], port: "22"}
		return a.filled(m[3])
	}
	u, err := url.Parse(raw)
	if err != nil {
		return a, "it is no URL"
	}
	_, password := u.User.Password()
	a = address{ssh: u.Scheme == "ssh", user: u.User.Username(), host: u.Hostname(), port: u.Port()}
	switch {
	case password || !a.ssh && a.user != "":
		return a, "a credential does not belong into it"
	case u.Scheme != "ssh" && u.Scheme != "https":
		return a, "the gate speaks SSH and HTTPS"
	case u.RawQuery != "" || u.Fragment != "":
		return a, "it has a query or a fragment"
	}
	return a.filled(u.Path)
}

// filled is the address with what nobody has said, once it and its path were looked at.
func (a address) filled(path string) (address, string) {
	switch {
	case a.host == "" || strings.HasPrefix(a.host, "-"):
		return a, "it has no host"
	case path == "" || path == "/" || strings.HasPrefix(path, "-") || strings.ContainsFunc(path, unicode.IsControl):
		return a, "it has no path"
	}
	if a.ssh && a.user == "" {
		a.user = "git"
	}
	if a.port == "" {
		a.port = map[bool]string{true: "22", false: "443"}[a.ssh]
	}
	return a, ""
}

// checkRemote looks at a remote, and says which key it has where it does not.
func (c *composed) checkRemote(name string, p *problems) {
	r := c.Remotes[name]
	place := func(path string) Place {
		from := c.from["remotes."+name]
		return source{from.bottle, from.path + path}.place()
	}
	what := "remotes." + name
	if !remoteName().MatchString(name) || strings.HasSuffix(name, ".git") || strings.Contains(name, "..") {
		p.add(place(""), "a to z, 0 to 9, . _ and -, without .git at the end", "%s is no name of a remote", quoted(name))
		return
	}
	if r.URL == "" {
		p.add(place(""), "url: ssh://git@host/path", "%s has no url", what)
		return
	}
	a, problem := parseURL(r.URL)
	if problem != "" {
		p.add(place(".url"), urlHint, "%s.url: %s", what, problem)
		return
	}
	c.checkKey(what, &r.Key, a, place, p)
	for _, line := range strings.Split(strings.TrimSpace(r.KnownHostKey), "\n") {
		if line = strings.TrimSpace(line); line != "" && !isHostKey(line) {
			p.add(place(".known_host_key"), "as ssh-keyscan prints it after the host's name: ssh-ed25519 AAAA...", "%s.known_host_key: it is no key of a host", what)
		} else if line != "" && !a.ssh {
			p.add(place(".known_host_key"), "leave it out", "%s.known_host_key: keys of hosts are of SSH, and it is reached by HTTPS", what)
		}
	}
	c.Remotes[name] = r
}

func (c *composed) checkKey(what string, k *Key, a address, place func(string) Place, p *problems) {
	if k.Provider == "" && (a.ssh || k.Path != "") {
		k.Provider = static
	}
	switch {
	case k.Provider == "" && k.Path == "": // HTTPS without a credential
	case !slices.Contains(keyProviders, k.Provider):
		p.add(place(".key.provider"), strings.Join(keyProviders, ", "), "%s.key.provider: there is no provider %s of keys", what, quoted(k.Provider))
	case k.Path == "":
		p.add(place(".key"), "key: {path: ~/.ssh/id_ed25519}", "%s.key: the key has no path", what)
	case !strings.HasPrefix(k.Path, "/") && !strings.HasPrefix(k.Path, "~/"):
		p.add(place(".key.path"), "an absolute path, or one below ~/", "%s.key.path: %s is a relative path, which leads elsewhere from each directory", what, quoted(k.Path))
	case strings.ContainsFunc(k.Path, unicode.IsControl) || slices.Contains(strings.Split(k.Path, "/"), ".."):
		p.add(place(".key.path"), "", "%s.key.path: %s is no path that says where it leads", what, quoted(k.Path))
	}
}

// isHostKey reports whether a line is a public key as OpenSSH writes it: its type, and the
// key, which begins with its type too.
func isHostKey(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 2 || len(line) > 16<<10 {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(fields[1])
	head := fmt.Sprintf("\x00\x00\x00%c%s", len(fields[0]), fields[0])
	return err == nil && len(fields[0]) < 128 && len(b) > len(head) && strings.HasPrefix(string(b), head)
}
