package server

import (
	"context"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// maxImageRef bounds a name that goes to the store, in bytes.
const maxImageRef = 512

// Images keeps images for their owners. A name is its owner's alone: others'
// names are NotFound. Every error is an *sandbox.Error where its text is fit
// to show.
type Images interface {
	// Pull fetches an image and gives it to p.Owner. progress is called from
	// any goroutine, and never blocks.
	Pull(ctx context.Context, p Pull, progress func(api.ImageProgress)) (api.Image, error)
	// Import makes an image of a tar stream; name may be "".
	Import(ctx context.Context, owner, name string, tar io.Reader, progress func(api.ImageProgress)) (api.Image, error)
	List(ctx context.Context, owner string) ([]api.Image, error)
	// Find takes a name, a name with a digest, or the start of a digest.
	Find(ctx context.Context, owner, ref string) (api.Image, error)
	// ByDigest takes the digest that a sandbox's record has.
	ByDigest(ctx context.Context, digest string) (api.Image, error)
	Remove(ctx context.Context, owner, ref string) error
	// GC deletes what no name and no sandbox of any owner needs.
	GC(ctx context.Context) (api.ImageGC, error)
}

// Pull is what is to be pulled, and for whom.
type Pull struct {
	Owner string
	Ref   string
	Auth  *api.RegistryAuth // nil: as anybody
	// Remote says that a key's holder asked: what the registry's name leads to
	// must not be an address of this host or of its own networks.
	Remote bool
}

// imageAPI is what /v1/ has about images.
type imageAPI struct {
	store Images // nil: there is none
	slots imageSlots
	log   *slog.Logger
}

// kept returns the store, or says that there is none.
func (a *imageAPI) kept() (Images, error) {
	if a.store == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "images: this daemon keeps none").
			WithHint("use image %q", sandbox.DefaultImage)
	}
	return a.store, nil
}

// list lists the caller's images, or with ?ref= the one of that name.
func (a *imageAPI) list(w http.ResponseWriter, r *http.Request) {
	images, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	ref, given, err := imageRef(r, "ref")
	if err != nil {
		wire.Error(w, err)
		return
	}
	owner := auth.Of(r).Caller.Owner
	if given {
		img, err := images.Find(r.Context(), owner, ref)
		answer(w, http.StatusOK, []api.Image{img}, err)
		return
	}
	list, err := images.List(r.Context(), owner)
	if list == nil {
		list = []api.Image{}
	}
	answer(w, http.StatusOK, list, err)
}

func (a *imageAPI) remove(w http.ResponseWriter, r *http.Request) {
	images, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	ref, given, err := imageRef(r, "ref")
	if err == nil && !given {
		err = sandbox.Errorf(sandbox.Invalid, "parameter ref: it is missing")
	}
	if err == nil {
		err = images.Remove(r.Context(), auth.Of(r).Caller.Owner, ref)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *imageAPI) collect(w http.ResponseWriter, r *http.Request) {
	if err := mustAdmin(r); err != nil {
		wire.Error(w, err)
		return
	}
	images, err := a.kept()
	if err != nil {
		wire.Error(w, err)
		return
	}
	gone, err := images.GC(r.Context())
	if gone.Removed == nil {
		gone.Removed = []string{}
	}
	answer(w, http.StatusOK, gone, err)
}

func (a *imageAPI) pull(w http.ResponseWriter, r *http.Request) {
	images, err := a.kept()
	var req api.PullRequest
	if err == nil {
		err = wire.Decode(r, &req, false)
	}
	if err == nil {
		err = checkImageRef("ref", req.Ref)
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	p := auth.Of(r)
	a.work(w, r, func(progress func(api.ImageProgress)) (api.Image, error) {
		return images.Pull(r.Context(), Pull{
			Owner: p.Caller.Owner, Ref: req.Ref, Auth: req.Auth, Remote: p.Peer == nil,
		}, progress)
	})
}

// importTar reads a tar stream while it answers.
func (a *imageAPI) importTar(w http.ResponseWriter, r *http.Request) {
	images, err := a.kept()
	var name string
	if err == nil {
		name, _, err = imageRef(r, "name")
	}
	if mt, _, perr := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && (perr != nil || mt != "application/x-tar") {
		err = sandbox.Errorf(sandbox.Invalid, "body: its Content-Type is not application/x-tar").WithHint("send the header Content-Type: application/x-tar")
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	// Without it the first line of progress would wait for the body's end. HTTP/2
	// needs no asking, and says that it does not know what is asked.
	_ = http.NewResponseController(w).EnableFullDuplex()
	owner := auth.Of(r).Caller.Owner
	a.work(w, r, func(progress func(api.ImageProgress)) (api.Image, error) {
		return images.Import(r.Context(), owner, name, r.Body, progress)
	})
}

// imageRef reads a parameter that names an image and is there at most once.
func imageRef(r *http.Request, name string) (ref string, given bool, err error) {
	q, err := query(r, name)
	if err != nil || len(q[name]) == 0 {
		return "", false, err
	}
	if len(q[name]) > 1 {
		return "", false, sandbox.Errorf(sandbox.Invalid, "parameter %s: it is there twice", name)
	}
	ref = q[name][0]
	return ref, true, checkImageRef("parameter "+name, ref)
}

// checkImageRef bounds a name; what it means is the store's to know.
func checkImageRef(what, ref string) error {
	if ref == "" || len(ref) > maxImageRef {
		return sandbox.Errorf(sandbox.Invalid, "%s: from 1 to %d bytes", what, maxImageRef)
	}
	return nil
}

// resolve turns what a create names into what its record keeps: "host", or a
// name and the digest that it stands for now.
func (a *imageAPI) resolve(ctx context.Context, p *auth.Principal, ref string) (string, error) {
	if ref == "" || ref == sandbox.DefaultImage {
		if !p.HostImage() {
			return "", sandbox.Errorf(sandbox.Denied, "image %s: this key may not use it", sandbox.DefaultImage).
				WithHint("name another image; %s", sandbox.HostImageHint)
		}
		return ref, nil
	}
	images, err := a.kept()
	if err != nil {
		return "", err
	}
	if err := checkImageRef("image", ref); err != nil {
		return "", err
	}
	img, err := images.Find(ctx, p.Caller.Owner, ref)
	if err != nil {
		return "", err
	}
	// Of several names for one content, the one that was asked for.
	if base, digest, ok := strings.Cut(ref, "@"); ok && digest == img.Digest {
		img.Name = base
	}
	return sandbox.PinnedImage(img.Name, img.Digest), nil
}

// splitImage takes apart what a record keeps.
func splitImage(image string) (name, digest string) {
	digest = sandbox.ImageDigest(image)
	return strings.TrimSuffix(image, "@"+digest), digest
}

// imageConfigs looks up what images say of their commands, each once.
type imageConfigs struct {
	images *imageAPI
	known  map[string]*api.ImageConfig
}

// of returns the configuration of an image, nil where it can't be had: a
// sandbox is shown all the same.
func (c *imageConfigs) of(ctx context.Context, digest string) *api.ImageConfig {
	if digest == "" || c.images.store == nil {
		return nil
	}
	if conf, ok := c.known[digest]; ok {
		return conf
	}
	var conf *api.ImageConfig
	img, err := c.images.store.ByDigest(ctx, digest)
	if err != nil {
		c.images.log.Warn("look up the image of a sandbox", "digest", digest, "error", err)
	} else {
		conf = &img.Config
	}
	if c.known == nil {
		c.known = map[string]*api.ImageConfig{}
	}
	c.known[digest] = conf
	return conf
}
