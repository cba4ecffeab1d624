package daemon

import (
	"archive/tar"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type offline struct{}

func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("off line") }

// The configured image may be one that was imported: workspaces of hosts have no
// names of their own, and get it as well. Any other name of the daemon's own
// user stays theirs alone.
func TestPinTheConfiguredImage(t *testing.T) {
	store, err := image.Open(t.TempDir(), image.Options{Transport: offline{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	i := &images{store: store}
	digests := map[string]string{}
	for owner, names := range map[string][]string{ownUID(): {"tools", "own"}, "box:theirs": {"tools"}} {
		for _, name := range names {
			img, err := store.Import(t.Context(), owner, name, archiveOf(t, owner+name), nil)
			if err != nil {
				t.Fatal(err)
			}
			digests[owner+" "+name] = img.Digest
		}
	}
	for _, tt := range []struct {
		name, owner, image, configured string
		want                           string // whose, and its name; "": it is looked for in vain
	}{
		{"own-user", ownUID(), "tools", "tools", ownUID() + " tools"},
		{"workspace", "box:ws", "tools", "tools", ownUID() + " tools"},
		{"one-of-its-own", "box:theirs", "tools", "tools", "box:theirs tools"},
		{"not-the-configured", "box:ws", "own", "tools", ""},
		{"none-configured", "box:ws", "tools", "", ""},
		{"configured-and-nowhere", "box:ws", "else", "else", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := i.pin(t.Context(), sandbox.Caller{Owner: tt.owner}, tt.image, tt.configured)
			if tt.want == "" {
				if err == nil || !strings.Contains(err.Error(), "registry index.docker.io") {
					t.Fatalf("pin = %q, %v; want it to be asked for at its registry", got, err)
				}
				return
			}
			if err != nil || sandbox.ImageDigest(got) != digests[tt.want] {
				t.Errorf("pin = %q, %v, want %s", got, err, digests[tt.want])
			}
		})
	}
}

// archiveOf is a root file system with one file.
func archiveOf(t *testing.T, content string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "usr/bin/tool", Mode: 0o755, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
