package servertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// FakeImages is a store of images that never was a store: every reference can
// be pulled, and an archive is an image whatever it holds. References that
// begin with one of these behave otherwise:
//
//	private    needs FakeUser and FakePassword
//	nowhere    is not found, before any progress
//	broken     fails after some progress
//	odd        fails so as well, by an error that is not fit to show
//	slow       makes progress until its caller has gone
//	chatty     makes a lot of progress
type FakeImages struct {
	Cancelled chan string      // the reference of each slow pull, and "import" of an import, that was given up
	Pulls     chan server.Pull // what was asked for; full, it is dropped

	mu    sync.Mutex
	owned map[string][]api.Image
	waste []string // digests that GC is to tell of
}

// What a private image asks for.
const (
	FakeUser     = "somebody"
	FakePassword = "hunter2"
)

var _ server.Images = (*FakeImages)(nil)

// NewFakeImages returns an empty store.
func NewFakeImages() *FakeImages {
	return &FakeImages{
		Cancelled: make(chan string, 16), Pulls: make(chan server.Pull, 64),
		owned: map[string][]api.Image{},
	}
}

// FakeDigest is the digest of what text stands for.
func FakeDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Waste makes a digest one that the next GC says it removed.
func (f *FakeImages) Waste(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waste = append(f.waste, digest)
}

// Pull implements server.Images.
func (f *FakeImages) Pull(ctx context.Context, p server.Pull, progress func(api.ImageProgress)) (api.Image, error) {
	select {
	case f.Pulls <- p:
	default:
	}
	kind, _, _ := strings.Cut(p.Ref, ":")
	switch kind {
	case "nowhere":
		return api.Image{}, sandbox.Errorf(sandbox.NotFound, "image %s: the registry has none", p.Ref)
	case "private":
		if p.Auth == nil || p.Auth.Username != FakeUser || p.Auth.Password != FakePassword {
			return api.Image{}, sandbox.Errorf(sandbox.Denied, "image %s: the registry wants to know who asks", p.Ref)
		}
	}
	progress(api.ImageProgress{Phase: "resolve"})
	progress(api.ImageProgress{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 50, Total: 100})
	switch kind {
	case "broken":
		return api.Image{}, sandbox.Errorf(sandbox.Invalid, "layer aaaaaaaaaaaa: broken").WithHint("mend it")
	case "odd":
		return api.Image{}, errors.New("open /root/secret: no")
	case "slow":
		return api.Image{}, f.slow(ctx, p.Ref, progress)
	case "chatty":
		for i := range int64(100_000) {
			progress(api.ImageProgress{Layer: strconv.FormatInt(i%100, 10), Phase: "download", Done: i, Total: 100_000})
		}
	}
	progress(api.ImageProgress{Layer: "aaaaaaaaaaaa", Phase: "unpack", Done: 100, Total: 100})
	progress(api.ImageProgress{Layer: "aaaaaaaaaaaa", Phase: "done", Done: 100, Total: 100})
	progress(api.ImageProgress{Phase: "done"})
	return f.add(p.Owner, p.Ref, FakeDigest(p.Ref)), nil
}

func (f *FakeImages) slow(ctx context.Context, what string, progress func(api.ImageProgress)) error {
	progress(api.ImageProgress{Layer: "bbbbbbbbbbbb", Phase: "download", Done: 1, Total: 100})
	<-ctx.Done()
	f.Cancelled <- what
	return context.Cause(ctx)
}

// add gives owner an image.
func (f *FakeImages) add(owner, name, digest string) api.Image {
	img := api.Image{
		Name: name, Digest: digest, OS: "linux", Arch: "amd64", Size: 100, Layers: 1,
		Config: api.ImageConfig{
			User: "app", Env: []string{"PATH", "LANG"}, WorkingDir: "/srv",
			Entrypoint: []string{"/bin/echo"}, Cmd: []string{"hello"},
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owned[owner] = slices.DeleteFunc(f.owned[owner], func(o api.Image) bool { return o.Name == name })
	f.owned[owner] = append(f.owned[owner], img)
	return img
}

// Import implements server.Images. An archive that begins with "bad" is
// refused at once, without reading on.
func (f *FakeImages) Import(ctx context.Context, owner, name string, tar io.Reader, progress func(api.ImageProgress)) (api.Image, error) {
	head := make([]byte, 3)
	if _, err := io.ReadFull(tar, head); err != nil {
		f.Cancelled <- "import"
		return api.Image{}, sandbox.Errorf(sandbox.Invalid, "archive: it ends early")
	}
	progress(api.ImageProgress{Phase: "download", Done: 3})
	if string(head) == "bad" {
		return api.Image{}, sandbox.Errorf(sandbox.Invalid, "archive: it is bad")
	}
	sum := sha256.New()
	_, _ = sum.Write(head)
	if _, err := io.Copy(sum, tar); err != nil {
		f.Cancelled <- "import"
		return api.Image{}, sandbox.Errorf(sandbox.Invalid, "archive: it ends early")
	}
	progress(api.ImageProgress{Phase: "done"})
	return f.add(owner, name, "sha256:"+hex.EncodeToString(sum.Sum(nil))), nil
}

// List implements server.Images.
func (f *FakeImages) List(_ context.Context, owner string) ([]api.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.owned[owner]), nil
}

// Find implements server.Images.
func (f *FakeImages) Find(_ context.Context, owner, ref string) (api.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	base, digest, _ := strings.Cut(ref, "@")
	for _, img := range f.owned[owner] {
		named := img.Name == base && digest == "" || base != "" && digest == img.Digest
		if named || len(ref) >= 12 && strings.HasPrefix(strings.TrimPrefix(img.Digest, "sha256:"), strings.TrimPrefix(ref, "sha256:")) {
			return img, nil
		}
	}
	return api.Image{}, sandbox.Errorf(sandbox.NotFound, "image %s: not here", ref).WithHint("carboy image pull %s", ref)
}

// ByDigest implements server.Images.
func (f *FakeImages) ByDigest(_ context.Context, digest string) (api.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range f.owned {
		for _, img := range list {
			if img.Digest == digest {
				return img, nil
			}
		}
	}
	return api.Image{}, sandbox.Errorf(sandbox.NotFound, "image %s: not here", digest)
}

// Remove implements server.Images.
func (f *FakeImages) Remove(ctx context.Context, owner, ref string) error {
	img, err := f.Find(ctx, owner, ref)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owned[owner] = slices.DeleteFunc(f.owned[owner], func(o api.Image) bool { return o.Name == img.Name })
	return nil
}

// GC implements server.Images: it says that it removed what Waste named.
func (f *FakeImages) GC(context.Context) (api.ImageGC, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := api.ImageGC{Removed: f.waste, Bytes: int64(len(f.waste)) * 100}
	f.waste = nil
	return gone, nil
}
