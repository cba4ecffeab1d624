package launch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// daemon makes whatever it is asked for.
type daemon struct{ image string }

func (d *daemon) CreateWatched(_ context.Context, req api.CreateRequest, _ func(api.CreateEvent)) (*api.Sandbox, error) {
	d.image = req.Image
	return &api.Sandbox{}, nil
}

func (*daemon) Image(context.Context, string) (*api.Image, error) { return &api.Image{}, nil }

func (*daemon) Secrets(context.Context) ([]api.Secret, error) { return nil, nil }

func (*daemon) Get(_ context.Context, ref string) (*api.Sandbox, error) {
	if ref == "taken" {
		return &api.Sandbox{}, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", ref)
}

func (*daemon) CheckCreate(_ context.Context, req api.CreateRequest) error {
	if req.Image+req.Template+req.Snapshot != "" {
		return sandbox.Errorf(sandbox.NotFound, "it is not there yet")
	}
	for _, m := range req.Mounts {
		if m.Volume != "data" {
			return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", m.Volume)
		}
	}
	return nil
}

// importer notes what it imports of this machine.
type importer struct {
	imported string
	pulled   bool
}

func (i *importer) Pull(context.Context, string) (*api.Image, error) {
	i.pulled = true
	return &api.Image{}, nil
}

func (i *importer) Import(_ context.Context, path, _ string) (*api.Image, error) {
	i.imported = path
	return &api.Image{}, nil
}

// TestNamedImageIsNoPath: an image that a project's file names is a reference, whatever
// somebody has put at a path of that name.
func TestNamedImageIsNoPath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("team", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), "team/tool"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		named          bool
		imports, image string
	}{{true, "", "team/tool"}, {false, "team/tool", ""}} {
		d, i := &daemon{}, &importer{}
		s := launch.Spec{Image: "team/tool", ImageNamed: tt.named}
		req, err := s.Request(func(string) (string, bool) { return "", false }, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		l := &launch.Launcher{Service: d, Images: i, Note: func(string, string) {}}
		if _, err := l.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if i.imported != tt.imports || d.image != tt.image {
			t.Errorf("named %t: imported %q, asked for %q", tt.named, i.imported, d.image)
		}
	}
}

// TestCheckedBeforeThePull: what can be known is told before an image is fetched.
func TestCheckedBeforeThePull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "GITHUB_TOKEN"
	for _, tt := range []struct {
		name, want string
		spec       launch.Spec
	}{
		{"good", "", launch.Spec{Name: "free", Secrets: []string{key + "=file:" + file}, Volumes: []string{"data:/data"}, Isolation: "process"}},
		{"no file", "--secret " + key + ": " + file + "x: no such file or directory", launch.Spec{Secrets: []string{key + "=file:" + file + "x"}}},
		{"no variable", "--secret " + key + ": NOWHERE is not set here, or empty", launch.Spec{Secrets: []string{key + "=env:NOWHERE"}}},
		{"no secret", "--secret " + key + ": no such secret is kept, and no variable of that name is set here", launch.Spec{Secrets: []string{key}}},
		{"name", "sandbox taken: the name is taken", launch.Spec{Name: "taken"}},
		{"volume", "volume none: not found", launch.Spec{Volumes: []string{"none:/data"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, i := &daemon{}, &importer{}
			tt.spec.Image, tt.spec.Pull = "example/image:1", launch.PullAlways
			if tt.spec.Secrets != nil {
				tt.spec.Allow = []string{"github"}
			}
			req, err := tt.spec.Request(noVariables, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			l := &launch.Launcher{Service: d, Images: i, LookupEnv: noVariables, Note: func(string, string) {}}
			_, err = l.Create(t.Context(), req)
			if got := fmt.Sprint(err); got != tt.want && (tt.want != "" || err != nil) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if i.pulled != (tt.want == "") {
				t.Errorf("pulled: %t", i.pulled)
			}
			if tt.want == "" && (len(req.Secrets) != 1 || *req.Secrets[0].Value != "value") {
				t.Errorf("secrets: %d", len(req.Secrets))
			}
		})
	}
}

func noVariables(string) (string, bool) { return "", false }
