package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Images are the images that this machine has unpacked.
type Images interface {
	// Has returns nil where the image with that manifest digest, such as
	// "sha256:0f…", is there whole, and NotFound where it is not.
	Has(ctx context.Context, digest string) error
}

const (
	maxImageName = 255 // bytes, without the digest
	shortDigest  = 12  // digits that tell images apart
	digestPrefix = "sha256:"
	digestLen    = len(digestPrefix) + 64
)

// ImageDigest returns the manifest digest, "sha256:" and 64 hexadecimal
// digits, of an image that is pinned as NAME@DIGEST, and "" for anything else.
func ImageDigest(image string) string {
	name, digest, ok := strings.Cut(image, "@")
	if !ok || !validImageName(name) || !validDigest(digest) {
		return ""
	}
	return digest
}

// PinnedImage is what a record keeps of an image, by one of its names and its
// digest. One without a name, or with one that no record can hold, goes by the
// start of its digest: it is found by that as well.
func PinnedImage(name, digest string) string {
	name, _, _ = strings.Cut(name, "@")
	if p := name + "@" + digest; ImageDigest(p) != "" {
		return p
	}
	return fmt.Sprintf("%.*s@%s", shortDigest, strings.TrimPrefix(digest, digestPrefix), digest)
}

func validImageName(s string) bool {
	if s == "" || len(s) > maxImageName || s[0] == '-' || s[0] == '.' || s[0] == '/' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !alnum && !strings.ContainsRune("._-/:", c)
	})
}

func validDigest(s string) bool {
	if len(s) != digestLen || !strings.HasPrefix(s, digestPrefix) {
		return false
	}
	return strings.Trim(s[len(digestPrefix):], "0123456789abcdef") == ""
}

// checkImage wants the host's own, or one that is pinned.
func (s Spec) checkImage(o Offer) *Error {
	if s.Image == DefaultImage {
		return nil
	}
	if ImageDigest(s.Image) == "" {
		return Errorf(Invalid, "image %q: neither %s nor pinned by its digest", cut(s.Image, maxImageName), DefaultImage).
			WithHint("%s, or NAME@sha256: and 64 hexadecimal digits", DefaultImage)
	}
	if !o.Images {
		return Errorf(Unsupported, "image %s: there are no images here", s.Image).
			WithHint("available: %s", DefaultImage)
	}
	return nil
}

// ImagesInUse returns the digests of the images of all sandboxes, stopped and
// kept ones among them, of snapshots, of instances kept warm, and of creates under
// way, sorted. It changes at any time: delete by it only within WithImages.
func (m *Manager) ImagesInUse() []string {
	var out []string
	add := func(image string) {
		if d := ImageDigest(image); d != "" {
			out = append(out, d)
		}
	}
	for _, u := range m.registry.uses() {
		add(u.image)
	}
	for _, image := range m.snapshots.images() { // last: a sandbox is saved before it can go
		add(image)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// WithImages calls f with the images in use while none more can come into
// use: a create of a sandbox with an image waits, at the point where it looks
// whether that is there, until f has returned. f must not call the Manager.
// Before the records are read it fails with Unavailable, without f: what is
// in use is not known.
func (m *Manager) WithImages(ctx context.Context, f func(ctx context.Context, inUse []string) error) error {
	return m.alone(ctx, m.images.turn, "images", func(ctx context.Context) error { return f(ctx, m.ImagesInUse()) })
}

// alone calls f with a turn, as an operation of its own.
func (m *Manager) alone(ctx context.Context, t turn, of string, f func(ctx context.Context) error) error {
	ctx, done, err := m.ops.begin(ctx, Caller{Admin: true})
	if err != nil {
		return err
	}
	defer done()
	if err := t.take(ctx); err != nil {
		return failure(err, "", "wait for another look at the "+of)
	}
	defer t.give()
	return f(ctx)
}

// images lets an image come into use, or be deleted where it is not: one of the
// two at a time. What is in use is known by the registry.
type images struct {
	store Images
	turn  turn // taken before that of the volumes, and before registry.mu
}

// pin sees that image is there and enters it as in use, by enter, before it can
// be deleted.
func (i *images) pin(ctx context.Context, image string, enter func() error) error {
	digest := ImageDigest(image)
	if digest == "" {
		return enter()
	}
	if err := i.turn.take(ctx); err != nil {
		return err
	}
	defer i.turn.give()
	if err := i.store.Has(ctx, digest); err != nil {
		return err
	}
	return enter()
}
