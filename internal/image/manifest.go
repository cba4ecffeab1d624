package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxPlatforms bounds the entries of an index.
const maxPlatforms = 1024

// descriptor points to content by its digest.
type descriptor struct {
	MediaType   types.MediaType   `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	OS      string `json:"os"`
	Arch    string `json:"architecture"`
	Variant string `json:"variant,omitempty"`
}

func (p platform) String() string {
	s := p.OS + "/" + p.Arch
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return term.Escape(short(s))
}

// rank is how well a platform suits this machine: 0 not at all, and the plain
// one better than a variant that not every such machine can run.
func (p platform) rank() int {
	switch {
	case p.OS != "linux" || p.Arch != runtime.GOARCH:
		return 0
	case p.Variant == "":
		return 3
	case p.Arch == "arm64" && p.Variant == "v8", p.Arch == "amd64" && p.Variant == "v1":
		return 2
	}
	return 0
}

// document is a manifest or an index; what it is, its fields and its media
// type must agree on.
type document struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     types.MediaType `json:"mediaType"`
	Config        *descriptor     `json:"config"`
	Layers        []descriptor    `json:"layers"`
	Manifests     []descriptor    `json:"manifests"`
}

// manifest is one image's, checked.
type manifest struct {
	digest string
	top    string // the digest of what led here: an index, or itself
	config descriptor
	layers []descriptor
}

// fetcher returns the content of a manifest or index, not yet checked against
// its digest, and what its source says its type is.
type fetcher func(ctx context.Context, d descriptor) ([]byte, types.MediaType, error)

// resolve follows d through at most two indexes to the manifest for this
// machine.
func resolve(ctx context.Context, d descriptor, limits Limits, get fetcher) (*manifest, error) {
	top := ""
	for range 3 {
		b, said, err := get(ctx, d)
		if err != nil {
			return nil, err
		}
		if err := matches("manifest", b, d); err != nil {
			return nil, err
		}
		doc, err := parseDocument(b, said)
		if err != nil {
			return nil, err
		}
		if doc.Manifests == nil {
			m, err := checkManifest(digestOf(b), doc, limits)
			if err == nil {
				m.top = cmp.Or(top, m.digest)
			}
			return m, err
		}
		top = cmp.Or(top, digestOf(b))
		if d, err = choose(doc.Manifests); err != nil {
			return nil, err
		}
		if err := sized("manifest", d, limits.Manifest); err != nil {
			return nil, err
		}
	}
	return nil, invalid("the image is an index of indexes of indexes: nested too deep")
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// matches checks content against what pointed to it, as far as that says.
func matches(what string, b []byte, d descriptor) error {
	if d.Digest != "" && d.Digest != digestOf(b) {
		return invalid("%s %s: its content has the digest %s", what, d.Digest, digestOf(b))
	}
	if d.Size > 0 && d.Size != int64(len(b)) {
		return invalid("%s %s: it has %d bytes, and should have %d", what, d.Digest, len(b), d.Size)
	}
	return nil
}

// sized checks what points to content that is to be read.
func sized(what string, d descriptor, most int64) error {
	switch {
	case !digestRE().MatchString(d.Digest):
		return invalid("%s: the digest %q is not sha256: and 64 lower-case hexadecimal digits", what, short(d.Digest))
	case d.Size <= 0:
		return invalid("%s %s: no size is given", what, d.Digest)
	case d.Size > most:
		return invalid("%s %s: it has %d bytes, at most %d", what, d.Digest, d.Size, most)
	}
	return nil
}

func parseDocument(b []byte, said types.MediaType) (*document, error) {
	doc := &document{}
	if err := parseJSON("manifest", b, doc); err != nil {
		return nil, err
	}
	t := doc.MediaType
	switch {
	case said.IsSchema1() || t.IsSchema1() || doc.SchemaVersion == 1:
		return nil, sandbox.Errorf(sandbox.Unsupported, "manifest: schema 1, which is long out of use").WithHint("push the image anew")
	case t == "":
		t = said
	case said != "" && said != t && (said.IsImage() || said.IsIndex()):
		return nil, invalid("manifest: it says that it is %s, and came as %s", quoted(t), quoted(said))
	}
	if t == "" {
		t = guess(doc)
	}
	switch {
	case doc.SchemaVersion != 2:
		return nil, invalid("manifest: schemaVersion is %d, not 2", doc.SchemaVersion)
	case !t.IsImage() && !t.IsIndex():
		return nil, sandbox.Errorf(sandbox.Unsupported, "manifest: unknown media type %s", quoted(t))
	case t.IsImage() && (doc.Manifests != nil || doc.Config == nil):
		return nil, invalid("manifest: it is both an image and an index, or has no config")
	case t.IsIndex() && (doc.Layers != nil || doc.Config != nil):
		return nil, invalid("manifest: it is both an index and an image")
	case t.IsIndex() && len(doc.Manifests) == 0:
		return nil, invalid("the index lists no image")
	case len(doc.Manifests) > maxPlatforms:
		return nil, invalid("the index lists %d images, at most %d", len(doc.Manifests), maxPlatforms)
	}
	return doc, nil
}

// guess is for documents that nobody gave a type: an OCI layout may leave it out.
func guess(doc *document) types.MediaType {
	if doc.Manifests != nil {
		return types.OCIImageIndex
	}
	return types.OCIManifestSchema1
}

func quoted(t types.MediaType) string { return term.Escape(short(fmt.Sprintf("%q", string(t)))) }

// choose picks the entry of an index for this machine. One that says nothing
// of a platform will do where it is alone: its configuration has to say it.
func choose(ds []descriptor) (descriptor, error) {
	best, at := 0, -1
	var there []string
	for i, d := range ds {
		if d.Platform == nil {
			if len(ds) == 1 {
				return d, nil
			}
			continue
		}
		if d.Platform.OS == "unknown" {
			continue // attestations
		}
		if p := d.Platform.String(); !slices.Contains(there, p) {
			there = append(there, p)
		}
		if r := d.Platform.rank(); r > best {
			best, at = r, i
		}
	}
	if at >= 0 {
		return ds[at], nil
	}
	const most = 20
	if len(there) > most {
		there = append(there[:most], "…")
	}
	if len(there) == 0 {
		there = []string{"none"}
	}
	return descriptor{}, sandbox.Errorf(sandbox.Unsupported, "the image was not found for linux/%s; there are: %s", runtime.GOARCH, strings.Join(there, ", "))
}

func checkManifest(digest string, doc *document, limits Limits) (*manifest, error) {
	if t := doc.Config.MediaType; !t.IsConfig() {
		return nil, sandbox.Errorf(sandbox.Unsupported, "manifest: its config is a %s: it is no container image", quoted(t))
	}
	if err := sized("image configuration", *doc.Config, limits.Config); err != nil {
		return nil, err
	}
	if len(doc.Layers) > maxLayers {
		return nil, tooManyLayers(len(doc.Layers))
	}
	for _, l := range doc.Layers {
		switch {
		case foreign(l.MediaType):
			return nil, sandbox.Errorf(sandbox.Unsupported, "layer %s: a %s: it may not be distributed, and is not fetched from elsewhere", shorten(l.Digest), quoted(l.MediaType))
		case !slices.Contains(layerTypes, l.MediaType):
			return nil, sandbox.Errorf(sandbox.Unsupported, "layer %s: unknown media type %s", shorten(l.Digest), quoted(l.MediaType))
		}
		if err := sized("layer", l, limits.Blob); err != nil {
			return nil, err
		}
	}
	return &manifest{digest: digest, config: *doc.Config, layers: doc.Layers}, nil
}

var layerTypes = []types.MediaType{
	types.OCIUncompressedLayer, types.OCILayer, types.OCILayerZStd,
	types.DockerUncompressedLayer, types.DockerLayer, "application/vnd.docker.image.rootfs.diff.tar.zstd",
}

func foreign(t types.MediaType) bool {
	return !t.IsDistributable() || strings.Contains(string(t), ".nondistributable.") || strings.Contains(string(t), ".foreign.")
}

// shorten returns the first 12 digits of a digest.
func shorten(digest string) string {
	h := strings.TrimPrefix(digest, "sha256:")
	return term.Escape(h[:min(len(h), 12)])
}

// synthesize writes the manifest of an image that came without one, so that
// the same content has the same digest whoever brings it.
func synthesize(config []byte, diffIDs []string) string {
	doc := document{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: &descriptor{
		MediaType: types.OCIConfigJSON, Digest: digestOf(config), Size: int64(len(config)),
	}}
	for _, id := range diffIDs {
		doc.Layers = append(doc.Layers, descriptor{MediaType: types.OCIUncompressedLayer, Digest: id})
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always can be
	}
	return digestOf(b)
}
