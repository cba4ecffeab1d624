package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Import reads an image from a tar, which may be compressed with gzip or zstd:
// an archive of docker save, an archive with an OCI layout, or else a root
// file system; what is in it decides. It gives the image to owner as name, or
// with "" by the names that the archive has for it. Of several images in one
// archive, name selects one. progress is as for Pull.
//
// Errors: Invalid for what can't be right, Unsupported for images of other
// machines and kinds, Exhausted where the disk is full.
func (s *Store) Import(ctx context.Context, owner, name string, r io.Reader, progress func(Progress)) (Image, error) {
	as := ""
	if name != "" {
		var err error
		if as, err = importName(name); err != nil {
			return Image{}, err
		}
	}
	j, err := s.begin(owner, progress)
	if err != nil {
		return Image{}, err
	}
	defer j.end()
	f, err := j.spool(ctx, r)
	if err != nil {
		return Image{}, within("import image", err)
	}
	defer f.Close()
	img, err := j.importFile(ctx, f, as)
	return img, within("import image", err)
}

// importName returns the short form of a name with a tag.
func importName(name string) (string, error) {
	r, err := parseReference(name)
	if err == nil && r.digest != "" {
		err = sandbox.Errorf(sandbox.Invalid, "image reference: an image that is imported has the digest that it has; give it a tag")
	}
	if err != nil {
		return "", err
	}
	return r.String(), nil
}

// candidate is an image of an archive.
type candidate struct {
	names []string
	load  func(ctx context.Context) (*manifest, *configFile, []source, error)
}

func (j *job) importFile(ctx context.Context, f *os.File, as string) (Image, error) {
	fi, err := f.Stat()
	if err != nil {
		return Image{}, fmt.Errorf("read archive: %w", err)
	}
	a, err := scan(f, fi.Size())
	if err != nil {
		return Image{}, err
	}
	read := j.dockerSave
	switch {
	case a.has("oci-layout"):
		read = j.layout
	case !a.isDockerSave():
		return j.rootFS(ctx, f, fi.Size(), as)
	}
	if a.bad != nil {
		return Image{}, a.bad
	}
	found, err := read(a)
	if err != nil {
		return Image{}, err
	}
	c, names, err := pick(found, as)
	if err != nil {
		return Image{}, err
	}
	m, conf, srcs, err := c.load(ctx)
	if err != nil {
		return Image{}, err
	}
	return j.finish(ctx, m, conf, srcs, names...)
}

// pick chooses the image that is meant, and what it is to be called.
func pick(found []candidate, as string) (candidate, []string, error) {
	if len(found) == 0 {
		return candidate{}, nil, invalid("the archive holds no image")
	}
	if as != "" {
		for _, c := range found {
			if slices.Contains(c.names, as) {
				return c, []string{as}, nil
			}
		}
	}
	if len(found) > 1 {
		const most = 20
		var there []string
		for _, c := range found[:min(len(found), most)] {
			there = append(there, c.String())
		}
		return candidate{}, nil, sandbox.Errorf(sandbox.Invalid, "the archive holds %d images: %s", len(found), strings.Join(there, ", ")).
			WithHint("name the one to import")
	}
	if as != "" {
		return found[0], []string{as}, nil
	}
	if len(found[0].names) == 0 {
		return candidate{}, nil, sandbox.Errorf(sandbox.Invalid, "the archive has no name for its image").WithHint("give it one, as tools:1")
	}
	return found[0], found[0].names, nil
}

// String is how a user tells it from others.
func (c candidate) String() string {
	if len(c.names) == 0 {
		return "one without a name"
	}
	return c.names[0]
}

// maxNames bounds what one image of an archive is called.
const maxNames = 100

// parseNames reads the names that an archive has for an image.
func parseNames(names []string) ([]string, error) {
	if len(names) > maxNames {
		return nil, invalid("archive: an image has %d names, at most %d", len(names), maxNames)
	}
	var refs []string
	for _, n := range names {
		r, err := importName(n)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(refs, r) {
			refs = append(refs, r)
		}
	}
	return refs, nil
}

// isDockerSave tells the list that docker save writes from a file of the same
// name in a root file system.
func (a *archive) isDockerSave() bool {
	r, err := a.open("manifest.json")
	if err != nil {
		return false
	}
	head := make([]byte, 64)
	n, err := io.ReadFull(r, head)
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) &&
		bytes.HasPrefix(bytes.TrimLeft(head[:n], " \t\r\n"), []byte("["))
}

// dockerSave reads the list of images that docker save writes.
func (j *job) dockerSave(a *archive) ([]candidate, error) {
	b, err := a.read("manifest.json", j.s.opts.Limits.Manifest)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := parseJSON("archive: manifest.json", b, &list); err != nil {
		return nil, err
	}
	var found []candidate
	for _, e := range list {
		names, err := parseNames(e.RepoTags)
		if err != nil {
			return nil, err
		}
		found = append(found, candidate{names, func(context.Context) (*manifest, *configFile, []source, error) {
			return j.loadSaved(a, e.Config, e.Layers)
		}})
	}
	return found, nil
}

// loadSaved reads an image of docker save. Its files are named for digests by
// custom, which is checked where it is kept; what binds the layers are the
// DiffIDs.
func (j *job) loadSaved(a *archive, config string, layers []string) (*manifest, *configFile, []source, error) {
	b, err := a.read(config, j.s.opts.Limits.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	base := strings.TrimSuffix(config[strings.LastIndexByte(config, '/')+1:], ".json")
	if d := "sha256:" + base; digestRE().MatchString(d) {
		if err := matches("image configuration", b, descriptor{Digest: d}); err != nil {
			return nil, nil, nil, err
		}
	}
	c, err := parseConfig(b, len(layers))
	if err != nil {
		return nil, nil, nil, err
	}
	m := &manifest{digest: synthesize(b, c.RootFS.DiffIDs)}
	var srcs []source
	for i, l := range layers {
		r, err := a.open(l)
		if err != nil {
			return nil, nil, nil, err
		}
		srcs = append(srcs, source{diffID: c.RootFS.DiffIDs[i], open: func(context.Context) (io.ReadCloser, int64, error) {
			return io.NopCloser(r), r.Size(), nil
		}})
	}
	return m, c, chained(srcs), nil
}

// rootFS takes the whole archive for one layer.
func (j *job) rootFS(ctx context.Context, f *os.File, size int64, as string) (Image, error) {
	if as == "" {
		return Image{}, sandbox.Errorf(sandbox.Invalid, "the archive is a root file system, which has no name").WithHint("give it one, as tools:1")
	}
	below := make(chan struct{}) // there is nothing to wait for
	close(below)
	diffID, err := j.makeLayer(ctx, source{open: func(context.Context) (io.ReadCloser, int64, error) {
		return io.NopCloser(f), size, nil
	}}, below)
	if err != nil {
		return Image{}, err
	}
	c := &configFile{OS: "linux", Arch: runtime.GOARCH}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{diffID}
	b, err := json.Marshal(c)
	if err != nil {
		return Image{}, fmt.Errorf("write image configuration: %w", err)
	}
	return j.finish(ctx, &manifest{digest: synthesize(b, c.RootFS.DiffIDs)}, c, nil, as)
}
