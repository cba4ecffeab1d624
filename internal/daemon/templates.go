package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/template/inside"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

const templatesDir = "templates"

// newTemplates makes the service of templates. It is opened once sandboxes were
// adopted.
func (d *daemon) newTemplates(db template.Store, kept *images, book *team.Book, live func(source string) bool) (_ *template.Service, err error) {
	opts := template.Options{
		Store: db, Manager: d.manager, Guest: inside.New, Dir: filepath.Join(d.cfg.Dirs.State, templatesDir),
		Log: d.log, Time: time.Duration(d.cfg.BuildTime), CacheSize: int64(d.cfg.BuildCache),
		EnvdVersion: e2b.EnvdVersion, Sudo: d.cfg.E2BSudo,
		Host: func(context.Context) (string, error) { return hostimage.Identity("/") },
		Room: func(owner, what string) error {
			return sandbox.RoomFor(d.deps.Disk, owner, what, sandbox.BeginRoom)
		},
		Live: live,
		Bound: func(owner string) (templates, builds int) {
			l := book.Limits(owner)
			return l.Templates, l.Builds
		},
	}
	if opts.Network, opts.Policy, err = d.cfg.buildNetwork(); err != nil {
		return nil, err
	}
	if kept != nil {
		opts.Images = buildImages{kept}
	}
	t, err := template.New(opts)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		kept.built = t.ImagesInUse
	}
	d.addBuiltins(t)
	return t, nil
}

// buildNetwork reads what builds may reach.
func (c Config) buildNetwork() (string, *policy.Policy, error) {
	bad := func(err error) error {
		return sandbox.Errorf(sandbox.Invalid, "build_network, build_policy: %w", err)
	}
	var p *policy.Policy
	if len(c.BuildPolicy) > 0 && string(c.BuildPolicy) != "null" {
		read, err := policy.Parse(c.BuildPolicy)
		if err != nil {
			return "", nil, sandbox.PolicyError("build_policy", err)
		}
		p = &read
	}
	network, p, err := sandbox.ResolveNetwork(c.BuildNetwork, p)
	if err != nil {
		return "", nil, bad(err)
	}
	if err := sandbox.CheckPolicy(p, nil); err != nil {
		return "", nil, bad(err)
	}
	return network, p, nil
}

// buildImages finds images for builds.
type buildImages struct{ kept *images }

var _ template.Images = buildImages{}

// Image implements template.Images.
func (b buildImages) Image(ctx context.Context, q template.ImageQuery, progress func(string)) (string, error) {
	img, err := b.kept.store.Find(ctx, q.Owner, q.Name)
	found := err == nil
	if q.Fresh || sandbox.KindOf(err) == sandbox.NotFound {
		progress("pulling " + q.Name)
		newer, perr := b.pull(ctx, q)
		if perr == nil || !found {
			img, err = newer, perr
		} else { // an image that was imported is in no registry
			progress("it could not be pulled: the one that is there is taken")
		}
	}
	if err != nil {
		return "", err
	}
	return sandbox.PinnedImage(img.Name, img.Digest), nil
}

func (b buildImages) pull(ctx context.Context, q template.ImageQuery) (image.Image, error) {
	pull := b.kept.store.Pull
	if q.Outside {
		pull = b.kept.store.PullOutside
	}
	var a *image.Auth
	if q.Auth != nil {
		a = &image.Auth{Username: q.Auth.Username, Password: q.Auth.Password}
	}
	return pull(ctx, q.Owner, q.Name, a, nil)
}
