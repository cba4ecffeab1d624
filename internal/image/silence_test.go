package image_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// stalling gives some bytes and then nothing, until nobody waits any more.
type stalling struct {
	io.Reader
	r *http.Request
}

func (s *stalling) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); !errors.Is(err, io.EOF) {
		return n, err
	}
	<-s.r.Context().Done()
	return 0, s.r.Context().Err()
}

func (s *stalling) Close() error { return nil }

// A registry that falls silent holds nobody for ever, and one that is slow is
// waited for.
func TestSilence(t *testing.T) {
	for _, silent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := build(tree{"a": noise(1000)})
			m := b.manifest()
			begun := time.Now()
			o := image.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				rec := httptest.NewRecorder()
				switch {
				case strings.Contains(r.URL.Path, "/manifests/"):
					rec.Header().Set("Content-Type", ociManifest)
					_, _ = rec.Write(m)
				case strings.HasSuffix(r.URL.Path, digest(b.confBlob)):
					_, _ = rec.Write(b.confBlob)
				case strings.Contains(r.URL.Path, "/blobs/") && silent:
					resp := rec.Result()
					resp.ContentLength, resp.Body = -1, &stalling{strings.NewReader(""), r}
					return resp, nil
				case strings.Contains(r.URL.Path, "/blobs/"):
					resp := rec.Result()
					resp.ContentLength, resp.Body = -1, io.NopCloser(&slow{bytes.NewReader(b.blobs[0])})
					return resp, nil
				}
				return rec.Result(), nil
			})}
			s, err := image.Open(t.TempDir(), o)
			must(err)
			_, err = s.Pull(t.Context(), me, "registry.example/app:1", nil, nil)
			took := time.Since(begun)
			if silent {
				wantError(t, err, sandbox.Unavailable, "nothing came over it")
				if want := 5*time.Minute + 15*time.Second; took != want {
					t.Errorf("it took %v, want five times a minute and four pauses", took)
				}
			} else if err != nil || took < 10*time.Minute {
				t.Errorf("Pull = %v after %v", err, took)
			}
		})
	}
}

// slow gives a hundred bytes every minute but a second.
type slow struct{ io.Reader }

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(59 * time.Second)
	return s.Reader.Read(p[:min(len(p), 100)])
}

// What Options has is used for trees: the daemon's own hands may not reach them.
func TestRemoveIsUsed(t *testing.T) {
	var removed []string
	w := newWorld(t, func(o *image.Options) {
		o.Remove = func(dir string) error { removed = append(removed, dir); return os.RemoveAll(dir) }
	})
	w.push("app", "1", build(tree{"a": "1"}))
	w.mustPull(me, "app:1")
	must(w.Remove(t.Context(), me, w.ref("app:1")))
	removed = nil
	_, _, err := w.GC(t.Context(), nil)
	must(err)
	if !slices.ContainsFunc(removed, func(d string) bool { return strings.Contains(d, "/tmp/") }) {
		t.Errorf("Remove was called for %q", removed)
	}
}
