// Package gitremote reads what is said of a git repository elsewhere: its name, its URL, and the
// keys that its host is known by. It does no I/O.
//
// It refuses what proves no host (git's own protocol and plain HTTP), credentials in a URL, and
// names that could be taken for something else where they become a part of a path.
package gitremote

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Place is where a remote's URL leads.
type Place struct {
	SSH        bool // or HTTPS
	User, Host string
	Port       string
	Path       string
}

// Forms are the URLs that there can be, for people.
const Forms = "ssh://git@host/path, git@host:path or https://host/path"

// Ports that a URL means where it says none.
const (
	SSHPort   = "22"
	HTTPSPort = "443"
)

var scpLike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:([\w.-]+)@)?([\w.-]+):([^:]+)$`) })

// Parse reads a URL as git has it; problem says what is wrong with it, and repeats nothing of it:
// it may hold a password.
func Parse(raw string) (p Place, problem string) {
	if m := scpLike().FindStringSubmatch(raw); m != nil && !strings.Contains(raw, "://") {
		p = Place{SSH: true, User: m[1], Host: m[2], Port: SSHPort, Path: m[3]}
		if portLike().MatchString(p.Path) {
			return p, "whether it begins with a port or with a directory can't be told: write ssh://"
		}
		return p.complete()
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return p, "it is none that names a host"
	}
	p = Place{SSH: u.Scheme == "ssh", User: u.User.Username(), Host: u.Hostname(), Port: u.Port(), Path: u.Path}
	_, secret := u.User.Password()
	switch {
	case secret || !p.SSH && p.User != "":
		return p, "a credential does not belong into it"
	case u.Scheme != "ssh" && u.Scheme != "https":
		return p, "git's own and plain HTTP prove no host, and nothing else is spoken"
	case u.RawQuery != "" || u.Fragment != "":
		return p, "it has a query or a fragment"
	}
	if p.SSH && strings.HasPrefix(p.Path, "/~") {
		p.Path = p.Path[1:]
	}
	return p.complete()
}

// complete is the place with what nobody has said, once it was looked at.
func (p Place) complete() (Place, string) {
	port, err := strconv.ParseUint(cmp.Or(p.Port, SSHPort), 10, 16)
	switch {
	case p.Host == "" || strings.HasPrefix(p.Host, "-"):
		return p, "it has no host"
	case strings.Contains(p.Host, ":") && !isAddress(p.Host):
		return p, "its host is none"
	case err != nil || port == 0:
		return p, "its port is none from 1 to 65535"
	case p.Path == "" || p.Path == "/":
		return p, "it has no path"
	case strings.HasPrefix(p.Path, "-") || strings.ContainsFunc(p.Path, unicode.IsControl) || slices.Contains(strings.Split(p.Path, "/"), ".."):
		return p, "its path is none"
	}
	if p.SSH && p.User == "" {
		p.User = "git"
	}
	if p.Port == "" {
		p.Port = map[bool]string{true: SSHPort, false: HTTPSPort}[p.SSH]
	}
	return p, ""
}

// portLike is the path of who means a port, which that form of a URL can't have.
var portLike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{1,5}/`) })

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Repository is what two places have in common that lead to one repository, as far as can be told without asking:
// a host's ways by the usual ports lead to the same.
func (p Place) Repository() string {
	port := p.Port
	if port == SSHPort && p.SSH || port == HTTPSPort && !p.SSH {
		port = ""
	}
	path := strings.TrimSuffix(strings.Trim(p.Path, "/"), ".git")
	return strings.ToLower(p.Host) + ":" + port + "/" + path
}

var plainPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w.-][\w./-]*$`) })

// Spellings are the URLs by which people call the repository of a good one, which is the first of them: by SSH in
// both of git's forms, by HTTPS, with and without .git at the end.
func Spellings(raw string) []string {
	p, problem := Parse(raw)
	if problem != "" {
		return nil
	}
	out := []string{raw}
	stem := strings.TrimSuffix(strings.TrimSuffix(p.Path, "/"), ".git")
	add := func(before string, ends ...string) {
		for _, end := range ends {
			if url := before + end; !slices.Contains(out, url) {
				out = append(out, url)
			}
		}
	}
	bare := strings.TrimPrefix(stem, "/")
	user := cmp.Or(p.User, "git")
	switch at := p.Host + ":" + p.Port; {
	case !plainPath().MatchString(bare) || strings.Contains(p.Host, ":"):
		add(strings.TrimSuffix(strings.TrimSuffix(raw, "/"), ".git"), ".git", "")
	case p.SSH && p.Port != SSHPort:
		add("ssh://"+user+"@"+at+"/"+bare, ".git", "")
	case !p.SSH && p.Port != HTTPSPort:
		add("https://"+at+"/"+bare, ".git", "")
	default:
		add("ssh://"+user+"@"+p.Host+"/"+bare, ".git", "")
		add(user+"@"+p.Host+":"+bare, ".git", "")
		add(user+"@"+p.Host+":/"+bare, ".git", "")
		if user == "git" {
			add("https://"+p.Host+"/"+bare, ".git", "")
		}
	}
	return out
}

// NameForm says what a remote may be called.
const NameForm = "letters, digits, . _ and -, the first and the last a letter or a digit, no .. within, no .git at the end, and not lock"

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,62}[a-zA-Z0-9])?$`) })

// ValidName reports whether a remote may be called so.
func ValidName(name string) bool {
	return nameForm().MatchString(name) && !strings.HasSuffix(name, ".git") && !strings.Contains(name, "..") && name != "lock"
}

// Keys are the lines of what a host is known by.
func Keys(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// KeyForm says what a host's key looks like.
const KeyForm = "as carboy git hostkey prints it: ssh-ed25519 AAAA..."

const maxKey = 16 << 10

// Fingerprint is how people compare a key: its type, and a sum of it as OpenSSH prints one.
func Fingerprint(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return ""
	}
	b, _ := base64.StdEncoding.DecodeString(fields[1]) // it was looked at
	sum := sha256.Sum256(b)
	return fields[0] + " SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// IsKey reports whether a line is a public key as OpenSSH writes it: its type, and the key, which
// begins with its type too.
func IsKey(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 2 || len(line) > maxKey {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(fields[1])
	head := fmt.Sprintf("\x00\x00\x00%c%s", len(fields[0]), fields[0])
	return err == nil && len(fields[0]) < 128 && len(b) > len(head) && strings.HasPrefix(string(b), head)
}

// PatternForm says what a pattern of protected refs looks like.
const PatternForm = "give the whole name, as refs/heads/main, or refs/heads/release/** for all that is below"

// CheckPattern says what is wrong with a pattern of refs: one of whole names, as path.Match has them, or one that
// ends with /** and is about all that is below.
func CheckPattern(pattern string) (problem string) {
	plain, below := strings.CutSuffix(pattern, "/**")
	if _, err := path.Match(plain, "x"); err != nil || strings.Contains(plain, "**") {
		return "it is no pattern"
	}
	if !below && !Carried(plain) || below && plain != "refs" && !Carried(plain+"/") {
		return "it protects nothing"
	}
	return ""
}

// Carried reports whether a ref of that name, or below it, passes the gate: branches, tags and notes do.
func Carried(ref string) bool {
	return strings.HasPrefix(ref, "refs/heads/") || strings.HasPrefix(ref, "refs/tags/") || strings.HasPrefix(ref, "refs/notes/")
}
