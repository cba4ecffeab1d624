package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// imageRecord is a file of manifests/.
type imageRecord struct {
	Digest  string    `json:"digest"`
	Rule    rule      `json:"rule,omitempty"`   // by which its layers were unpacked
	Layers  []string  `json:"layers"`           // the ids of those that show anything, lowest first, each once
	Before  []string  `json:"before,omitempty"` // those that it had by an earlier rule, which sandboxes may still use
	Config  Config    `json:"config"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	OS      string    `json:"os"`
	Arch    string    `json:"arch"`
	Notes   []string  `json:"notes,omitempty"`
}

// nameRecord is a file of names/.
type nameRecord struct {
	Owner  string `json:"owner"`
	Name   string `json:"name"`
	Digest string `json:"digest"`          // of the manifest
	Index  string `json:"index,omitempty"` // of the index that led to it: what a pin may name as well
}

// image returns the image of a record under a name.
func (s *Store) image(name string, r *imageRecord) Image {
	img := Image{
		Name: name, Digest: r.Digest, Config: r.Config, Size: r.Size,
		Created: r.Created, OS: r.OS, Arch: r.Arch, Notes: r.Notes,
	}
	for _, id := range r.Layers {
		img.Layers = append(img.Layers, s.layerTree(id))
	}
	return img
}

// names reads the names of an owner, or with "" of all. What is no record of
// this version is an error: an image that it may name must not be lost.
func (s *Store) names(owner string) ([]nameRecord, error) {
	dirs := []string{s.ownerDir(owner)}
	if owner == "" {
		es, err := os.ReadDir(filepath.Join(s.dir, "names"))
		if err != nil {
			return nil, fmt.Errorf("read image names: %w", err)
		}
		dirs = nil
		for _, e := range es {
			dirs = append(dirs, filepath.Join(s.dir, "names", e.Name()))
		}
	}
	var recs []nameRecord
	for _, dir := range dirs {
		es, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read image names: %w", err)
		}
		for _, e := range es {
			var r nameRecord
			switch err := readRecord(filepath.Join(dir, e.Name()), &r); {
			case errors.Is(err, fs.ErrNotExist): // removed since
			case err != nil:
				return nil, err
			case !digestRE().MatchString(r.Digest):
				return nil, fmt.Errorf("image record %s: it names no digest", filepath.Join(dir, e.Name()))
			default:
				recs = append(recs, r)
			}
		}
	}
	return recs, nil
}

// record reads an image by its digest.
func (s *Store) record(digest string) (*imageRecord, error) {
	r := &imageRecord{}
	if err := readRecord(s.manifestPath(digest), r); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(r.Layers, r.Before) {
		if !digestRE().MatchString(id) {
			return nil, fmt.Errorf("image record %s: it names no layer", s.manifestPath(digest))
		}
	}
	return r, nil
}

// layersOf returns the ids of the layers of an owner's images.
func (s *Store) layersOf(owner string) (map[string]bool, error) {
	recs, err := s.names(owner)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, n := range recs {
		r, err := s.record(n.Digest)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}
		for _, id := range r.Layers {
			has[id] = true
		}
	}
	return has, nil
}

// List returns an owner's images by name, or with "" everybody's. Nothing is
// an empty list.
func (s *Store) List(ctx context.Context, owner string) ([]Image, error) {
	recs, err := s.names(owner)
	if err != nil {
		return nil, err
	}
	imgs := []Image{}
	for _, n := range recs {
		img, stale, err := s.load(ctx, n)
		if sandbox.KindOf(err) == sandbox.NotFound {
			s.opts.Log.Warn("image is incomplete", "name", n.Name, "digest", n.Digest)
			continue
		}
		if err != nil {
			return nil, err
		}
		if stale {
			img.Notes = append([]string{staleNote}, img.Notes...)
		}
		imgs = append(imgs, img)
	}
	slices.SortFunc(imgs, func(a, b Image) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest))
	})
	return imgs, nil
}

// Find returns an owner's image: by name, by name@digest (the manifest's, or
// that of the index it was pulled by), or by at least 12 digits of its digest.
// The error is NotFound where there is none, or none that was unpacked rightly, and
// Invalid where digits fit more than one.
func (s *Store) Find(ctx context.Context, owner, ref string) (Image, error) {
	n, err := s.find(owner, ref)
	if err != nil {
		return Image{}, err
	}
	img, stale, err := s.load(ctx, n)
	if err == nil && stale {
		err = sandbox.Errorf(sandbox.NotFound, "image %s: %s", n.Name, staleNote).WithHint("carboy image pull %s", n.Name)
	}
	return img, err
}

func (s *Store) find(owner, ref string) (nameRecord, error) {
	if owner == "" {
		return nameRecord{}, sandbox.Errorf(sandbox.Invalid, "images: whose they are is not said")
	}
	recs, err := s.names(owner)
	if err != nil {
		return nameRecord{}, err
	}
	var hits []nameRecord
	if prefixRE().MatchString(ref) {
		hits = byPrefix(recs, ref)
	}
	if len(hits) == 0 {
		r, err := parseReference(ref)
		if err != nil {
			return nameRecord{}, err
		}
		hits = byName(recs, r)
	}
	if len(hits) == 0 {
		return nameRecord{}, sandbox.Errorf(sandbox.NotFound, "image %s: not found", term.Escape(ref)).WithHint("carboy image pull %s", term.Escape(ref))
	}
	return hits[0], differ(ref, hits)
}

// differ refuses hits that are several images.
func differ(ref string, hits []nameRecord) error {
	for _, h := range hits {
		if h.Digest != hits[0].Digest {
			return sandbox.Errorf(sandbox.Invalid, "image %s: more than one begins so, as %s and %s", term.Escape(ref), hits[0].Digest, h.Digest)
		}
	}
	return nil
}

func byPrefix(recs []nameRecord, ref string) (hits []nameRecord) {
	for _, n := range recs {
		if strings.HasPrefix(n.Digest, "sha256:"+strings.TrimPrefix(ref, "sha256:")) {
			hits = append(hits, n)
		}
	}
	return hits
}

func byName(recs []nameRecord, r reference) (hits []nameRecord) {
	for _, n := range recs {
		if n.Name == r.String() {
			return []nameRecord{n}
		}
		of, err := parseReference(n.Name)
		if err == nil && r.digest != "" && of.repository() == r.repository() && (n.Digest == r.digest || n.Index == r.digest) {
			hits = append(hits, n)
		}
	}
	return hits
}

// load returns the image that a name is of, NotFound where it is not whole, and whether an earlier
// rule unpacked it otherwise than this one would.
func (s *Store) load(ctx context.Context, n nameRecord) (img Image, stale bool, err error) {
	r, err := s.record(n.Digest)
	if err == nil {
		for _, id := range r.Layers {
			if !exists(s.layerDir(id)) {
				err = fs.ErrNotExist
			}
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && n.Name == "":
		return Image{}, false, sandbox.Errorf(sandbox.NotFound, "image %s: not found", term.Escape(short(n.Digest)))
	case errors.Is(err, fs.ErrNotExist):
		return Image{}, false, sandbox.Errorf(sandbox.NotFound, "image %s: its layers are gone", n.Name).WithHint("carboy image pull %s", n.Name)
	case err != nil:
		return Image{}, false, err
	}
	if n.Name != "" {
		stale, err = s.stale(ctx, r)
	}
	return s.image(n.Name, r), stale, err
}

// ByDigest returns the image with a manifest's digest, whoever has it, under
// no name: it is for records that were allowed when they were made, by whatever rule it was
// unpacked. The error is NotFound where there is none.
func (s *Store) ByDigest(ctx context.Context, digest string) (Image, error) {
	if !digestRE().MatchString(digest) {
		return Image{}, sandbox.Errorf(sandbox.Invalid, "image digest: not sha256: and 64 lower-case hexadecimal digits")
	}
	img, _, err := s.load(ctx, nameRecord{Digest: digest})
	return img, err
}
