package launch

import (
	"context"
	"fmt"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Service is what a launch asks of the daemon. *client.Client is one.
type Service interface {
	CreateWatched(ctx context.Context, req api.CreateRequest, news func(api.CreateEvent)) (*api.Sandbox, error)
	Image(ctx context.Context, ref string) (*api.Image, error)
	Secrets(ctx context.Context) ([]api.Secret, error)
	Get(ctx context.Context, ref string) (*api.Sandbox, error)
	CheckCreate(ctx context.Context, req api.CreateRequest) error
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
	// on: "home", "left_out", "published".
	Note func(reason, text string)
	// News is told how far the copy of a workspace is, and a set-up.
	News func(api.CreateEvent)
}

// Create makes a sandbox, and says what its owner should know before anything
// runs in it. Before that it fetches the image that req names: a path is
// imported, and a reference that the daemon does not have is pulled, as the Spec
// says.
func (l *Launcher) Create(ctx context.Context, req *Request) (*api.Sandbox, error) {
	if !req.checked {
		if err := l.addSecrets(ctx, req); err != nil {
			return nil, err
		}
	}
	sb, err := l.create(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, w := range sb.Warnings {
		l.Note("home", w)
	}
	for _, e := range sb.Enforced {
		if e.Promise == sandbox.PromiseTrust && !e.Enforced {
			l.Note("trust", e.Reason)
		}
	}
	for _, p := range sb.Published {
		l.Note("published", fmt.Sprintf("port %d is at 127.0.0.1:%d", p.Port, p.HostPort))
	}
	return sb, nil
}

func (l *Launcher) create(ctx context.Context, req *Request) (*api.Sandbox, error) {
	pull := func() (*api.Sandbox, error) {
		return l.createOf(ctx, req, func() (*api.Image, error) { return l.Images.Pull(ctx, req.Image) })
	}
	switch {
	case !req.named && isImagePath(req.Image):
		return l.createOf(ctx, req, func() (*api.Image, error) { return l.Images.Import(ctx, req.Image, pathName(req.Image)) })
	case req.pull == PullAlways:
		return pull()
	}
	sb, err := l.Service.CreateWatched(ctx, req.CreateRequest, l.News)
	if sandbox.KindOf(err) != sandbox.NotFound || req.pull == PullNever || !pullable(req.Image) {
		return sb, err
	}
	// It may be the image, or a directory of the host.
	if _, ierr := l.Service.Image(ctx, req.Image); sandbox.KindOf(ierr) != sandbox.NotFound {
		return nil, err
	}
	return pull()
}

// createOf makes the sandbox of the very image that is fetched for it, which is slow.
func (l *Launcher) createOf(ctx context.Context, req *Request, fetch func() (*api.Image, error)) (*api.Sandbox, error) {
	if err := l.Check(ctx, req); err != nil {
		return nil, err
	}
	img, err := fetch()
	if err != nil {
		return nil, err
	}
	for _, n := range img.Notes {
		l.Note("left_out", n)
	}
	of := req.CreateRequest
	of.Image = ImageName(img)
	return l.Service.CreateWatched(ctx, of, l.News)
}
