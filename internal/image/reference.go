package image

import (
	"net/netip"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxReference bounds the text of a reference. The parts have bounds of their
// own: 255 for registry and repository, 128 for a tag.
const maxReference = 512

var (
	repositoryRE = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	registryRE = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$`)
	})
	tagRE    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$`) })
	digestRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
	prefixRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(sha256:)?[0-9a-f]{12,64}$`) })
)

// reference names an image at a registry.
type reference struct {
	repo   name.Repository
	tag    string // "" beside a digest
	digest string // "sha256:…", or ""
}

// parseReference reads what a user calls an image. Its errors do not repeat
// what may hold a password: one with a scheme, or with an "@" that no digest
// follows.
func parseReference(s string) (reference, error) {
	switch {
	case s == "":
		return reference{}, sandbox.Errorf(sandbox.Invalid, "image reference: it is empty").WithHint("name one, as debian:12")
	case len(s) > maxReference:
		return reference{}, sandbox.Errorf(sandbox.Invalid, "image reference: %d bytes, at most %d", len(s), maxReference)
	case s == "host":
		return reference{}, sandbox.Errorf(sandbox.Invalid, `image reference: "host" is this machine's own system, and needs no image`)
	case strings.Contains(s, "://"):
		return reference{}, sandbox.Errorf(sandbox.Invalid, "image reference: it begins with a scheme").WithHint("leave out https:// and the like")
	}
	base, digest, pinned := strings.Cut(s, "@")
	if pinned && !digestRE().MatchString(digest) {
		return reference{}, sandbox.Errorf(sandbox.Invalid, `image reference: what follows "@" is not sha256: and 64 lower-case hexadecimal digits`)
	}
	tag, err := name.NewTag(base)
	if err != nil {
		return reference{}, badReference(s)
	}
	r := reference{repo: tag.Context(), tag: tag.TagStr(), digest: digest}
	if pinned {
		r.tag = ""
	}
	switch {
	case !registryRE().MatchString(r.repo.RegistryStr()) || !tagRE().MatchString(tag.TagStr()):
		return reference{}, badReference(s)
	case len(r.repo.RepositoryStr()) > 255 || !repositoryRE().MatchString(r.repo.RepositoryStr()):
		return reference{}, badReference(s)
	}
	return r, nil
}

func badReference(s string) error {
	return sandbox.Errorf(sandbox.Invalid, "image reference %s: not REPOSITORY[:TAG] or REPOSITORY@sha256:…", term.Escape(s)).
		WithHint("repositories are lower-case letters, digits and . _ - /")
}

// repository is the short form: without the default registry, and without its
// namespace for images of its own.
func (r reference) repository() string {
	full, repo := r.repo.Name(), r.repo.RepositoryStr()
	if r.repo.RegistryStr() != name.DefaultRegistry {
		return full
	}
	if own, ok := strings.CutPrefix(repo, "library/"); ok && !strings.Contains(own, "/") {
		return own
	}
	first, _, _ := strings.Cut(repo, "/")
	if first == "library" || first == "localhost" || strings.Contains(first, ".") {
		return full // the short form would mean something else
	}
	return repo
}

// String is the name that the store knows the image by.
func (r reference) String() string {
	if r.digest != "" {
		return r.repository() + "@" + r.digest
	}
	return r.repository() + ":" + r.tag
}

// identifier is what the registry is asked for.
func (r reference) identifier() string {
	if r.digest != "" {
		return r.digest
	}
	return r.tag
}

// loopback reports whether a host, with or without a port, is this machine by
// its very name.
func loopback(host string) bool {
	host = hostOnly(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// shared is what providers number their own networks from.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// inward reports whether a host is named by an address that a registry in
// public has no business to send anybody to.
func inward(host string) bool {
	if loopback(host) {
		return true
	}
	ip, err := netip.ParseAddr(hostOnly(host))
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return shared.Contains(ip) || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()
}

// hostOnly takes the port, the brackets and the zone off.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && (host[0] == '[' || strings.Count(host, ":") == 1) && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	host, _, _ = strings.Cut(host, "%")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
