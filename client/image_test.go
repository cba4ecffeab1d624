package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// setupImages returns a client of a daemon that keeps images.
func setupImages(t *testing.T) (*client.Client, *servertest.FakeImages) {
	t.Helper()
	images := servertest.NewFakeImages()
	d := servertest.New(t, servertest.NewGuest(), server.Options{Images: images})
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, images
}

func TestImages(t *testing.T) {
	c, images := setupImages(t)
	ctx := t.Context()
	if list, err := c.Images(ctx); err != nil || len(list) != 0 {
		t.Errorf("Images = %v, %v, want none", list, err)
	}
	var phases []string
	img, err := c.PullImage(ctx, api.PullRequest{Ref: "private:1", Auth: &api.RegistryAuth{
		Username: servertest.FakeUser, Password: servertest.FakePassword,
	}}, func(p api.ImageProgress) { phases = append(phases, p.Phase) })
	if err != nil || img.Name != "private:1" || img.Config.Entrypoint[0] != "/bin/echo" {
		t.Fatalf("PullImage = %+v, %v", img, err)
	}
	if len(phases) == 0 || phases[0] != "resolve" || phases[len(phases)-1] != "done" {
		t.Errorf("phases = %q, want from resolve to done", phases)
	}
	if got, err := c.Image(ctx, img.Digest); err != nil || got.Name != img.Name {
		t.Errorf("Image = %+v, %v", got, err)
	}
	if _, err := c.Image(ctx, "debian:11"); client.KindOf(err) != client.NotFound {
		t.Errorf("Image of what is not there = %v, want not found", err)
	}
	if err := c.RemoveImage(ctx, "private:1"); err != nil {
		t.Errorf("RemoveImage = %v", err)
	}
	if err := c.RemoveImage(ctx, "private:1"); client.KindOf(err) != client.NotFound {
		t.Errorf("RemoveImage twice = %v, want not found", err)
	}
	images.Waste(img.Digest)
	if gone, err := c.CollectImages(ctx); err != nil || len(gone.Removed) != 1 || gone.Bytes != 100 {
		t.Errorf("CollectImages = %+v, %v", gone, err)
	}
	// Without anybody who wants to know how far it is.
	if _, err := c.PullImage(ctx, api.PullRequest{Ref: "debian:12"}, nil); err != nil {
		t.Errorf("PullImage = %v", err)
	}
}

func TestPullErrors(t *testing.T) {
	c, _ := setupImages(t)
	for ref, want := range map[string]client.Kind{
		"nowhere:1": client.NotFound, "broken:1": client.Invalid, "odd:1": client.Internal, "private:1": client.Denied, "": client.Invalid,
	} {
		_, err := c.PullImage(t.Context(), api.PullRequest{Ref: ref}, nil)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Kind != want {
			t.Errorf("PullImage(%q) = %v, want %s", ref, err, want)
		}
	}
}

func TestPullCancelled(t *testing.T) {
	c, images := setupImages(t)
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := c.PullImage(ctx, api.PullRequest{Ref: "slow:1"}, func(p api.ImageProgress) {
		if p.Layer == "bbbbbbbbbbbb" {
			cancel(left)
		}
	})
	if !errors.Is(err, left) {
		t.Errorf("PullImage = %v, want the cause", err)
	}
	if got := <-images.Cancelled; got != "slow:1" {
		t.Errorf("the daemon gave up %s", got)
	}
}

// breaking ends with an error after some bytes.
type breaking struct {
	n   int
	err error
}

func (f *breaking) Read(b []byte) (int, error) {
	if f.n <= 0 {
		return 0, f.err
	}
	n := min(f.n, len(b))
	clear(b[:n])
	f.n -= n
	return n, nil
}

func TestImport(t *testing.T) {
	c, images := setupImages(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	told := 0
	img, err := c.ImportImage(t.Context(), "mine", bytes.NewReader(big), func(api.ImageProgress) { told++ })
	if err != nil || img.Name != "mine" || img.Digest != servertest.FakeDigest(string(big)) || told == 0 {
		t.Errorf("ImportImage = %+v, %v after %d pieces of news", img, err, told)
	}
	// What the daemon refuses early is told, although most of it was not sent.
	for range 5 {
		_, err = c.ImportImage(t.Context(), "", io.MultiReader(strings.NewReader("bad"), bytes.NewReader(big), bytes.NewReader(big)), nil)
		if client.KindOf(err) != client.Invalid || err.Error() != "archive: it is bad" {
			t.Errorf("ImportImage of a bad one = %v, want the daemon's words", err)
		}
	}
	broken := errors.New("the disk broke")
	for _, n := range []int{0, 1 << 10, 4 << 20} {
		if _, err := c.ImportImage(t.Context(), "", &breaking{n, broken}, nil); !errors.Is(err, broken) {
			t.Errorf("ImportImage of what breaks after %d bytes = %v, want why", n, err)
		}
		<-images.Cancelled
	}
	if list, err := c.Images(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("Images = %v, %v, want the good one alone", list, err)
	}
}

func TestStrangeNews(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want client.Kind
	}{
		"nothing":       {"", client.Unavailable},
		"cut":           {`{"progress":{"phase":"resolve"}}` + "\n", client.Unavailable},
		"not-json":      {"<html>\n", client.Internal},
		"unknown-kind":  {`{"error":{"code":"new","message":"m"}}`, client.Internal},
		"from-newer":    {`{"weather":{}}` + "\n" + `{"error":{"code":"denied","message":"m"}}`, client.Denied},
		"after-the-end": {`{"error":{"code":"invalid","message":"m"}}` + "\n" + `{"image":{}}`, client.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			c, err := client.New(client.Options{URL: srv.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if img, err := c.PullImage(t.Context(), api.PullRequest{Ref: "a"}, nil); client.KindOf(err) != tt.want || img != nil {
				t.Errorf("PullImage = %+v, %v, want %s", img, err, tt.want)
			}
		})
	}
}
