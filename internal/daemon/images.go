package daemon

import (
	"context"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// images shows an image store to the server and to the domain, in their own
// terms.
type images struct {
	store   *image.Store
	manager *sandbox.Manager // to know what is in use
	// built returns the digests of images that templates need besides.
	built func() []string
}

var (
	_ server.Images  = (*images)(nil)
	_ sandbox.Images = (*images)(nil)
)

// Has implements sandbox.Images.
func (i *images) Has(ctx context.Context, digest string) error {
	_, err := i.store.ByDigest(ctx, digest)
	return err
}

// Pull implements server.Images.
func (i *images) Pull(ctx context.Context, p server.Pull, progress func(api.ImageProgress)) (api.Image, error) {
	var auth *image.Auth
	if a := p.Auth; a != nil {
		auth = &image.Auth{
			Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
		}
	}
	pull := i.store.Pull
	if p.Remote {
		pull = i.store.PullOutside
	}
	img, err := pull(ctx, p.Owner, p.Ref, auth, wireProgress(progress))
	return wireImage(img), err
}

// Import implements server.Images.
func (i *images) Import(ctx context.Context, owner, name string, tar io.Reader, progress func(api.ImageProgress)) (api.Image, error) {
	img, err := i.store.Import(ctx, owner, name, tar, wireProgress(progress))
	return wireImage(img), err
}

// List implements server.Images.
func (i *images) List(ctx context.Context, owner string) ([]api.Image, error) {
	list, err := i.store.List(ctx, owner)
	out := make([]api.Image, 0, len(list))
	for _, img := range list {
		out = append(out, wireImage(img))
	}
	return out, err
}

// Find implements server.Images.
func (i *images) Find(ctx context.Context, owner, ref string) (api.Image, error) {
	img, err := i.store.Find(ctx, owner, ref)
	return wireImage(img), err
}

// ByDigest implements server.Images.
func (i *images) ByDigest(ctx context.Context, digest string) (api.Image, error) {
	img, err := i.store.ByDigest(ctx, digest)
	return wireImage(img), err
}

// Remove implements server.Images.
func (i *images) Remove(ctx context.Context, owner, ref string) error {
	return i.store.Remove(ctx, owner, ref)
}

// GC implements server.Images.
func (i *images) GC(ctx context.Context) (out api.ImageGC, err error) {
	err = i.manager.WithImages(ctx, func(ctx context.Context, inUse []string) error {
		out.Removed, out.Bytes, err = i.store.GC(ctx, append(inUse, i.built()...))
		return err
	})
	return out, err
}

func wireProgress(to func(api.ImageProgress)) func(image.Progress) {
	if to == nil {
		return nil
	}
	return func(p image.Progress) {
		to(api.ImageProgress{Layer: p.Layer, Phase: p.Phase, Done: p.Done, Total: p.Total})
	}
}

func wireImage(img image.Image) api.Image {
	out := api.Image{
		Name: img.Name, Digest: img.Digest, OS: img.OS, Arch: img.Arch, Size: img.Size, Layers: len(img.Layers),
		Notes: img.Notes, CreatedAt: img.Created,
		Config: api.ImageConfig{
			User: img.Config.User, WorkingDir: img.Config.WorkingDir,
			Entrypoint: img.Config.Entrypoint, Cmd: img.Config.Cmd,
		},
	}
	for _, e := range img.Config.Env { // values may be secrets
		name, _, _ := strings.Cut(e, "=")
		out.Config.Env = append(out.Config.Env, name)
	}
	return out
}
