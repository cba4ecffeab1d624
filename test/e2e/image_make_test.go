package e2e

import (
	"archive/tar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// busybox is the program, as a file of a layer, and links to it in the same directory by the
// names of its applets.
func busybox(t testing.TB, dir string, applets ...string) []entry {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("the tests need busybox-static: ", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := []entry{file(dir+"/busybox", string(program))}
	for _, name := range applets {
		list = append(list, entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: dir + "/" + name, Linkname: "busybox"}})
	}
	return list
}

// imageOf makes an image for this machine of layers, the lowest first.
func imageOf(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.Architecture, cfg.OS, cfg.Config = "amd64", "linux", config
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

// saveImage writes an image to an archive as docker save does, under a name.
func saveImage(t testing.TB, img v1.Image, as string) (path string) {
	t.Helper()
	tag, err := name.NewTag("example.test/" + as)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveImage gives an image to a registry, until the test ends, and returns its name there.
func serveImage(t testing.TB, img v1.Image, as string) (ref string) {
	t.Helper()
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://")+"/team/"+as, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	return tag.String()
}
