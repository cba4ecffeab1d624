package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Pull fetches an image from its registry, or what is missing of it, and
// gives it to owner by the name ref. A digest in ref is what the manifest, or
// the index that leads to it, must have. auth may be nil. progress may be nil;
// it is called from one goroutine at a time, and not after Pull returned.
//
// A pull that was cut off, by whatever, is gone on with by the next. Errors:
// Invalid for what can't be right, Unsupported for images of other machines
// and kinds, Denied, NotFound and Unavailable as the registry has it, and
// Exhausted where the disk is full or too many pulls run.
func (s *Store) Pull(ctx context.Context, owner, ref string, auth *Auth, progress func(Progress)) (Image, error) {
	return s.pull(ctx, owner, ref, auth, progress, false)
}

// PullOutside is Pull for those who are to reach nothing of this host, nor of
// its networks, by it: a registry that is there by address or by name is
// refused, and so is one that sends on to such an address. The error is Denied.
func (s *Store) PullOutside(ctx context.Context, owner, ref string, auth *Auth, progress func(Progress)) (Image, error) {
	return s.pull(ctx, owner, ref, auth, progress, true)
}

func (s *Store) pull(ctx context.Context, owner, ref string, auth *Auth, progress func(Progress), outside bool) (Image, error) {
	r, err := parseReference(ref)
	if err != nil {
		return Image{}, err
	}
	j, err := s.begin(owner, progress)
	if err != nil {
		return Image{}, err
	}
	defer j.end()
	img, err := j.pull(ctx, r, auth, outside)
	return img, within("pull "+r.String(), err)
}

// within says what was being done when err came.
func within(doing string, err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		c := *e
		c.Msg = doing + ": " + e.Msg
		return &c
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func (j *job) pull(ctx context.Context, ref reference, auth *Auth, outside bool) (Image, error) {
	j.rep.report("", PhaseResolve, 0, 0)
	reg, err := j.s.connect(ctx, ref, auth, outside)
	if err != nil {
		return Image{}, err
	}
	m, err := resolve(ctx, descriptor{Digest: ref.digest}, j.s.opts.Limits, reg.manifest)
	if err != nil {
		return Image{}, err
	}
	b, err := reg.config(ctx, m.config)
	if err != nil {
		return Image{}, err
	}
	c, err := parseConfig(b, len(m.layers))
	if err != nil {
		return Image{}, err
	}
	srcs, err := sources(m, c, func(src source, d descriptor) source {
		path := j.s.partialPath(j.owner, src)
		src.open = func(ctx context.Context) (io.ReadCloser, int64, error) {
			f, err := reg.download(ctx, d, path, func(n int64) { j.rep.report(src.name(), PhaseDownload, n, d.Size) })
			return f, d.Size, err
		}
		src.used = func() { _ = os.Remove(path) } // GC takes what stays
		return src
	})
	if err != nil {
		return Image{}, err
	}
	return j.finish(ctx, m, c, srcs, ref.String())
}

// sources pairs the layers of a manifest with their DiffIDs.
func sources(m *manifest, c *configFile, with func(source, descriptor) source) ([]source, error) {
	var srcs []source
	blobs := map[string]string{}
	for i, l := range m.layers {
		id := c.RootFS.DiffIDs[i]
		if other := blobs[l.Digest]; other != "" && other != id {
			return nil, invalid("layer %s: the image's configuration has two digests for what is in it", shorten(l.Digest))
		}
		blobs[l.Digest] = id
		srcs = append(srcs, source{diffID: id, blob: l.Digest})
	}
	for i, src := range chained(srcs) {
		srcs[i] = with(src, m.layers[i])
	}
	return srcs, nil
}

// finish makes the layers and then the records: a manifest only when its
// layers are there, a name only when its manifest is.
func (j *job) finish(ctx context.Context, m *manifest, c *configFile, srcs []source, names ...string) (Image, error) {
	j.pin(m.digest)
	ids := chain(c.RootFS.DiffIDs)
	j.pin(ids...)
	if err := j.layers(ctx, srcs); err != nil {
		return Image{}, err
	}
	rec := &imageRecord{
		Digest: m.digest, Rule: ruleOver, Layers: ids, Config: c.config(),
		Created: c.Created, OS: c.OS, Arch: c.Arch, Notes: c.notes,
	}
	if err := j.s.fill(rec); err != nil {
		return Image{}, err
	}
	if err := j.s.keepRecord(rec); err != nil {
		return Image{}, err
	}
	dir := j.s.ownerDir(j.owner)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Image{}, fmt.Errorf("keep image name: %w", err)
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return Image{}, fmt.Errorf("keep image name: %w", err)
	}
	for _, n := range names {
		r := nameRecord{Owner: j.owner, Name: n, Digest: m.digest, Index: m.top}
		if err := j.s.writeRecord("name", filepath.Join(dir, hashOf(n)+".json"), r); err != nil {
			return Image{}, err
		}
	}
	j.rep.report("", PhaseDone, rec.Size, rec.Size)
	return j.s.image(names[0], rec), nil
}
