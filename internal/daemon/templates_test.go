package daemon_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// A daemon that a client started stays while a build is under way, though
// nobody asks and no sandbox runs.
func TestIdleExitWaitsForBuilds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a registry that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dirs := newHome(t)
	if err := dirs.Create(); err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(filepath.Join(dirs.Cache, "images"), image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	with := deps(sandboxtest.New("gvisor"))
	with.Images = images
	r, c := runBriefly(t, dirs, with)
	ref, err := c.RequestBuild(t.Context(), api.BuildRequest{Name: "web"})
	if err == nil {
		err = c.StartBuild(t.Context(), *ref, api.BuildPlan{FromImage: silent.Addr().String() + "/x:1"})
	}
	if err == nil {
		err = c.Remove(t.Context(), "web", true)
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
		t.Fatalf("it left while a build was under way: %v", r.err)
	case <-time.After(400 * time.Millisecond):
	}
	if err := c.CancelBuild(t.Context(), *ref); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
