package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What an OCI layout calls its images.
const (
	fullName = "io.containerd.image.name"
	refName  = "org.opencontainers.image.ref.name" // often a tag alone
)

// layout reads the index of an OCI layout.
func (j *job) layout(a *archive) ([]candidate, error) {
	most := j.s.opts.Limits.Manifest
	b, err := a.read("oci-layout", most)
	if err != nil {
		return nil, err
	}
	var v struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err := parseJSON("archive: oci-layout", b, &v); err != nil {
		return nil, err
	}
	if v.Version != "1.0.0" {
		return nil, invalid("archive: oci-layout: version %q, not 1.0.0", short(v.Version))
	}
	if b, err = a.read("index.json", most); err != nil {
		return nil, err
	}
	var index document
	if err := parseJSON("archive: index.json", b, &index); err != nil {
		return nil, err
	}
	if len(index.Manifests) > maxPlatforms {
		return nil, invalid("archive: index.json lists %d images, at most %d", len(index.Manifests), maxPlatforms)
	}
	return j.candidates(a, index.Manifests)
}

// candidates puts the entries of an index together: those of one digest are
// one image, and those without any name are one image for several platforms.
func (j *job) candidates(a *archive, ds []descriptor) ([]candidate, error) {
	var found []candidate
	at := map[string]int{}
	named := false
	for _, d := range ds {
		if err := sized("manifest", d, j.s.opts.Limits.Manifest); err != nil {
			return nil, err
		}
		names, err := parseNames(layoutNames(d.Annotations))
		if err != nil {
			return nil, err
		}
		named = named || len(names) > 0
		if i, ok := at[d.Digest]; ok {
			found[i].names = append(found[i].names, names...)
			continue
		}
		at[d.Digest] = len(found)
		found = append(found, j.inLayout(a, d, names))
	}
	if named || len(found) < 2 {
		return found, nil
	}
	d, err := choose(ds)
	if err != nil {
		return nil, err
	}
	return []candidate{j.inLayout(a, d, nil)}, nil
}

func layoutNames(annotations map[string]string) []string {
	if n := annotations[fullName]; n != "" {
		return []string{n}
	}
	if n := annotations[refName]; strings.ContainsAny(n, ":/") {
		return []string{n}
	}
	return nil
}

func (j *job) inLayout(a *archive, d descriptor, names []string) candidate {
	return candidate{names, func(ctx context.Context) (*manifest, *configFile, []source, error) {
		limits := j.s.opts.Limits
		m, err := resolve(ctx, d, limits, func(_ context.Context, d descriptor) ([]byte, types.MediaType, error) {
			b, err := a.read(blobName(d), limits.Manifest)
			return b, d.MediaType, err
		})
		if err != nil {
			return nil, nil, nil, err
		}
		b, err := a.read(blobName(m.config), limits.Config)
		if err != nil {
			return nil, nil, nil, err
		}
		if err := matches("image configuration", b, m.config); err != nil {
			return nil, nil, nil, err
		}
		c, err := parseConfig(b, len(m.layers))
		if err != nil {
			return nil, nil, nil, err
		}
		for _, l := range m.layers {
			if _, err := a.open(blobName(l)); err != nil {
				return nil, nil, nil, err
			}
		}
		srcs, err := sources(m, c, func(src source, d descriptor) source {
			src.open = func(context.Context) (io.ReadCloser, int64, error) { return a.blob(d) }
			return src
		})
		return m, c, srcs, err
	}}
}

// blobName is for digests that were checked to be such.
func blobName(d descriptor) string {
	return "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:")
}

// blob returns a layer's content, checked.
func (a *archive) blob(d descriptor) (io.ReadCloser, int64, error) {
	r, err := a.open(blobName(d))
	if err != nil {
		return nil, 0, err
	}
	if r.Size() != d.Size {
		return nil, 0, invalid("layer %s: it has %d bytes, and should have %d", shorten(d.Digest), r.Size(), d.Size)
	}
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return nil, 0, fmt.Errorf("read archive: %w", err)
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != d.Digest {
		return nil, 0, invalid("layer %s: its content has the digest %s", shorten(d.Digest), got)
	}
	_, err = r.Seek(0, io.SeekStart)
	return io.NopCloser(r), r.Size(), err
}
