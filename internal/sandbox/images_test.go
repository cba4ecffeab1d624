package sandbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// shelf is a set of images, by digest.
type shelf struct {
	mu     sync.Mutex
	images []string
	looked chan struct{} // if not nil, told of each look and waited for
}

func (s *shelf) Has(ctx context.Context, digest string) error {
	if s.looked != nil {
		select {
		case s.looked <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.images, digest) {
		return sandbox.Errorf(sandbox.NotFound, "image %s: not found", digest).WithHint("carboy image pull")
	}
	return nil
}

// keep drops every image that is not in use.
func (s *shelf) keep(inUse []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = slices.DeleteFunc(s.images, func(d string) bool { return !slices.Contains(inUse, d) })
}

// digestOf returns the digest that ends in c.
func digestOf(c string) string { return digest[:len(digest)-1] + c }

func (w *world) withImages(images sandbox.Images) sandbox.Options {
	return sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Images: images}
}

func wantImages(t *testing.T, d *daemon, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.ImagesInUse(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("images in use (-want +got):\n%s", diff)
	}
}

func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := &shelf{images: []string{digestOf("1"), digestOf("2"), digestOf("3")}}
		d := w.bootWith(t, w.withImages(s))
		wantImages(t, d)
		create(t, d, sandbox.Spec{Name: "host"})
		sb := create(t, d, sandbox.Spec{Name: "two", Image: "two@" + digestOf("2")})
		if got := sandbox.ImageDigest(sb.Spec.Image); got != digestOf("2") {
			t.Errorf("digest = %q", got)
		}
		create(t, d, sandbox.Spec{Name: "one", Image: "one:1@" + digestOf("1")})
		create(t, d, sandbox.Spec{Name: "one-too", Image: "eins@" + digestOf("1")})
		create(t, d, sandbox.Spec{Name: "three", Image: "three@" + digestOf("3"), Ephemeral: true, Workspace: cow()})
		w.fake.SetChanges(get(t, d, "three").ID, []byte("M a.txt"))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "four", Image: "four@" + digestOf("4")}, nil)
		wantKind(t, "Create with an image that is not there", err, sandbox.NotFound)
		wantGone(t, d, "four")
		d.Stop(t.Context(), ann, "two")
		if res, err := d.Finish(t.Context(), ann, "three"); err != nil || !res.Kept {
			t.Errorf("Finish = %+v, %v", res, err)
		}
		wantImages(t, d, digestOf("1"), digestOf("2"), digestOf("3"))
		d.shutdown()

		d = w.bootWith(t, w.withImages(s))
		wantImages(t, d, digestOf("1"), digestOf("2"), digestOf("3"))
		d.Remove(t.Context(), ann, "one", true)
		wantImages(t, d, digestOf("1"), digestOf("2"), digestOf("3"))
		d.Remove(t.Context(), ann, "one-too", true)
		d.Remove(t.Context(), ann, "three", true)
		wantImages(t, d, digestOf("2"))
		d.shutdown()
		w.check(t)
	})
}

func TestNoImages(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Image: "debian@" + digest}, nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
	})
}

// TestCollectionAndCreate: an image that a create has found there is not
// deleted beneath it, and one that is being deleted is not found.
func TestCollectionAndCreate(t *testing.T) {
	t.Run("create-first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			s := &shelf{images: []string{digest}, looked: make(chan struct{})}
			d := w.bootWith(t, w.withImages(s))
			var wg sync.WaitGroup
			wg.Go(func() { create(t, d, sandbox.Spec{Name: "web", Image: "a@" + digest}) })
			synctest.Wait() // it is within its look
			wg.Go(func() {
				err := d.WithImages(t.Context(), func(_ context.Context, inUse []string) error {
					s.keep(inUse)
					return nil
				})
				if err != nil {
					t.Errorf("WithImages: %v", err)
				}
			})
			synctest.Wait()
			<-s.looked
			wg.Wait()
			wantState(t, d, "web", sandbox.StateRunning, "")
			if len(s.images) != 1 {
				t.Error("the image of a sandbox was deleted")
			}
			d.shutdown()
			w.check(t)
		})
	})
	t.Run("collection-first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			s := &shelf{images: []string{digest}}
			d := w.bootWith(t, w.withImages(s))
			var err error
			var wg sync.WaitGroup
			werr := d.WithImages(t.Context(), func(_ context.Context, inUse []string) error {
				wg.Go(func() { _, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "web", Image: "a@" + digest}, nil) })
				wg.Go(func() { create(t, d, sandbox.Spec{Name: "host"}) }) // waits for nothing
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := d.Create(ctx, ann, sandbox.Spec{Image: "a@" + digest}, nil)
				wantKind(t, "Create by a caller who left", err, sandbox.Unavailable)
				wantState(t, d, "host", sandbox.StateRunning, "")
				s.keep(inUse)
				return errBoom
			})
			if werr != errBoom {
				t.Errorf("WithImages = %v, want what the function returned", werr)
			}
			wg.Wait()
			wantKind(t, "Create after the image was deleted", err, sandbox.NotFound)
			d.shutdown()
			w.check(t)
		})
	})
}

// TestImagesBeforeAdopt: while the records are unknown nothing may be deleted.
func TestImagesBeforeAdopt(t *testing.T) {
	m, err := sandbox.NewManager(sandbox.Options{
		Store: &newWorld().store, Backends: []sandbox.Backend{sandboxtest.New("gvisor")}, Images: &shelf{},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = m.WithImages(t.Context(), func(context.Context, []string) error {
		t.Error("called")
		return nil
	})
	wantKind(t, "WithImages", err, sandbox.Unavailable)
}
