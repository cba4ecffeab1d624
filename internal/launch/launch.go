package launch

import (
	"context"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Service is what a launch asks of the daemon. *client.Client is one.
type Service interface {
	Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error)
	Image(ctx context.Context, ref string) (*api.Image, error)
	Secrets(ctx context.Context) ([]api.Secret, error)
}

// Images fetches images, with the caller's rights and credentials.
type Images interface {
	Pull(ctx context.Context, ref string) (*api.Image, error)
	Import(ctx context.Context, path, name string) (*api.Image, error)
}

// Launcher makes sandboxes.
type Launcher struct {
	Service   Service
	Images    Images
	LookupEnv func(string) (string, bool)
	// Note tells what the owner should know, after a word that programs can act
	// on: "home", "left_out".
	Note func(reason, text string)
}

// Create makes a sandbox, and says what its owner should know before anything
// runs in it. Before that it fetches the image that req names: a path is
// imported, and a reference that the daemon does not have is pulled, as the Spec
// says.
func (l *Launcher) Create(ctx context.Context, req *Request) (*api.Sandbox, error) {
	if err := l.addSecrets(ctx, req); err != nil {
		return nil, err
	}
	sb, err := l.create(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, w := range sb.Warnings {
		l.Note("home", w)
	}
	return sb, nil
}

func (l *Launcher) create(ctx context.Context, req *Request) (*api.Sandbox, error) {
	switch {
	case isImagePath(req.Image):
		img, err := l.Images.Import(ctx, req.Image, pathName(req.Image))
		return l.createOf(ctx, req, img, err)
	case req.pull == PullAlways:
		img, err := l.Images.Pull(ctx, req.Image)
		return l.createOf(ctx, req, img, err)
	}
	sb, err := l.Service.Create(ctx, req.CreateRequest)
	if sandbox.KindOf(err) != sandbox.NotFound || req.pull == PullNever || !pullable(req.Image) {
		return sb, err
	}
	// It may be the image, or a directory of the host.
	if _, ierr := l.Service.Image(ctx, req.Image); sandbox.KindOf(ierr) != sandbox.NotFound {
		return nil, err
	}
	img, err := l.Images.Pull(ctx, req.Image)
	return l.createOf(ctx, req, img, err)
}

// createOf makes the sandbox of the very image that was fetched for it.
func (l *Launcher) createOf(ctx context.Context, req *Request, img *api.Image, err error) (*api.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	for _, n := range img.Notes {
		l.Note("left_out", n)
	}
	of := req.CreateRequest
	of.Image = ImageName(img)
	return l.Service.Create(ctx, of)
}
