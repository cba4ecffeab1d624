package cli_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// imageRoutes are the fake's own images. Every reference can be pulled, but for
// those of which pullImage knows otherwise, and an archive is an image if it is
// a tar at all.
func (d *fakeDaemon) imageRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/images":         d.listImages,
		"DELETE /v1/images":      d.removeImage,
		"POST /v1/images/pull":   d.pullImage,
		"POST /v1/images/import": d.importImage,
		"POST /v1/images/gc":     d.gcImages,
	}
}

// fakeDigest is the digest of what text stands for.
func fakeDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (d *fakeDaemon) addImage(name, digest string, notes ...string) api.Image {
	img := api.Image{
		Name: name, Digest: digest, OS: "linux", Arch: "amd64", Size: 3 << 20, Layers: 2, CreatedAt: created, Notes: notes,
		Config: api.ImageConfig{
			User: "app", Env: []string{"LANG", "PATH"}, WorkingDir: "/srv",
			Entrypoint: []string{"echo", "entry"}, Cmd: []string{"default", "words"},
		},
	}
	if strings.HasPrefix(name, "plain") {
		img.Config = api.ImageConfig{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images = slices.DeleteFunc(d.images, func(o api.Image) bool { return o.Name == name })
	d.images = append(d.images, img)
	return img
}

// findImageLocked is what the store would find.
func (d *fakeDaemon) findImageLocked(ref string) (*api.Image, error) {
	base, digest, _ := strings.Cut(ref, "@")
	for i := range d.images {
		img := &d.images[i]
		named := img.Name == base && (digest == "" || digest == img.Digest)
		if named || len(ref) >= 12 && strings.HasPrefix(strings.TrimPrefix(img.Digest, "sha256:"), strings.TrimPrefix(ref, "sha256:")) {
			return img, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "image %s: not found", ref).WithHint("carboy image pull %s", ref)
}

func (d *fakeDaemon) listImages(w http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ref := r.URL.Query().Get("ref"); ref != "" {
		img, err := d.findImageLocked(ref)
		if err != nil {
			return err
		}
		return answer(w, []api.Image{*img})
	}
	return answer(w, append([]api.Image{}, d.images...))
}

func (d *fakeDaemon) removeImage(_ http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	img, err := d.findImageLocked(r.URL.Query().Get("ref"))
	if err != nil {
		return err
	}
	name := img.Name
	d.images = slices.DeleteFunc(d.images, func(o api.Image) bool { return o.Name == name })
	return nil
}

func (d *fakeDaemon) gcImages(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, api.ImageGC{Removed: []string{fakeDigest("a"), fakeDigest("b")}, Bytes: 5 << 20})
}

func (d *fakeDaemon) pullImage(w http.ResponseWriter, r *http.Request) error {
	var req api.PullRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	base := req.Ref[strings.LastIndexByte(req.Ref, '/')+1:]
	switch {
	case strings.HasPrefix(base, "nowhere"):
		return sandbox.Errorf(sandbox.NotFound, "image %s: the registry has none", req.Ref)
	case strings.HasPrefix(base, "private") && (req.Auth == nil || *req.Auth != api.RegistryAuth{Username: "somebody", Password: "hunter2"}):
		return sandbox.Errorf(sandbox.Denied, "image %s: the registry wants to know who asks", req.Ref).WithHint("docker login")
	}
	news := []api.ImageProgress{
		{Phase: "resolve"},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 1 << 20, Total: 2 << 20},
		{Layer: "bbbbbbbbbbbb", Phase: "download", Done: 10, Total: 1 << 20},
		{Layer: "aaaaaaaaaaaa", Phase: "download", Done: 2 << 20, Total: 2 << 20},
		{Layer: "aaaaaaaaaaaa", Phase: "unpack", Done: 1 << 20, Total: 2 << 20},
		{Layer: "aaaaaaaaaaaa", Phase: "done", Done: 2 << 20, Total: 2 << 20},
	}
	for i := range news {
		if err := answer(w, api.ImageEvent{Progress: &news[i]}); err != nil {
			return err
		}
		_ = http.NewResponseController(w).Flush()
	}
	if strings.HasPrefix(base, "broken") {
		return answer(w, api.ImageEvent{Error: &api.Error{Code: "invalid", Message: "layer bbbbbbbbbbbb: broken", Hint: "mend it"}})
	}
	if strings.HasPrefix(base, "slow") {
		<-r.Context().Done()
		return nil
	}
	img := d.addImage(req.Ref, fakeDigest(req.Ref), "2 devices were left out")
	return answer(w, api.ImageEvent{Image: &img})
}

// importImage keeps what an archive holds: a line for each of its members.
func (d *fakeDaemon) importImage(w http.ResponseWriter, r *http.Request) error {
	var list bytes.Buffer
	sum := sha256.New()
	tr := tar.NewReader(io.TeeReader(r.Body, sum))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "archive: not a tar")
		}
		fmt.Fprintf(&list, "%c %s %o %d:%d %s\n", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.Linkname)
	}
	if _, err := io.Copy(sum, r.Body); err != nil {
		return err
	}
	name := r.URL.Query().Get("name")
	if name == "" {
		name = "from-archive:1"
	}
	img := d.addImage(name, "sha256:"+hex.EncodeToString(sum.Sum(nil)))
	d.mu.Lock()
	d.imported = list.String()
	d.mu.Unlock()
	return answer(w, api.ImageEvent{Image: &img})
}

// dress gives a sandbox the image that it was made of.
func (d *fakeDaemon) dressLocked(sb *api.Sandbox, ref string) error {
	if ref == "" || ref == "host" {
		return nil
	}
	img, err := d.findImageLocked(ref)
	if err != nil {
		return err
	}
	sb.Image, _, _ = strings.Cut(img.Name, "@")
	sb.ImageDigest, sb.ImageConfig = img.Digest, &img.Config
	return nil
}
