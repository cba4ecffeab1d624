package sandbox_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// diskWall is a wall that can pause, and whose disks say what they were asked.
type diskWall struct {
	sandboxtest.Suspender
	hold chan struct{} // nil, or closed to end a listing
}

func (d diskWall) Capabilities() sandbox.Capabilities {
	c := d.Suspender.Capabilities()
	c.Disks = d
	return c
}

func (d diskWall) ListDisk(_ context.Context, sb *sandbox.Sandbox, path string, _ bool, w io.Writer) error {
	if d.hold != nil {
		<-d.hold
	}
	if path == "/fails" {
		return errors.New("the disk is on fire")
	}
	_, err := io.WriteString(w, sb.Spec.Name+path)
	return err
}

func (d diskWall) ReadDisk(_ context.Context, _ *sandbox.Sandbox, path string, _ int64, w io.Writer) error {
	_, err := io.WriteString(w, path)
	return err
}

func (d diskWall) ExportDisk(_ context.Context, _ *sandbox.Sandbox, w io.Writer) error {
	_, err := io.WriteString(w, "image")
	return err
}

func (d diskWall) ScrubDisk(_ context.Context, _ *sandbox.Sandbox, progress func(sandbox.DiskStep)) error {
	progress(sandbox.DiskStep{Step: "copy"})
	return nil
}

// looks calls each of what can be done with a disk.
func looks(t *testing.T, d *daemon, c sandbox.Caller, ref string) map[string]error {
	t.Helper()
	return map[string]error{
		"list":   d.ListDisk(t.Context(), c, ref, "/", true, io.Discard),
		"read":   d.ReadDisk(t.Context(), c, ref, "/f", 1, io.Discard),
		"export": d.ExportDisk(t.Context(), c, ref, io.Discard),
		"scrub":  d.ScrubDisk(t.Context(), c, ref, func(sandbox.DiskStep) {}),
	}
}

func TestDiskOfStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{diskWall{Suspender: sandboxtest.Suspender{Fake: w.fake}}}})
		create(t, d, sandbox.Spec{Name: "web"})
		for what, err := range looks(t, d, ann, "web") {
			wantKind(t, what+" while it runs", err, sandbox.Conflict)
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Hint != "carboy stop web" {
				t.Errorf("%s: %+v", what, e)
			}
		}
		if _, _, err := d.Pause(t.Context(), ann, "web", true); err != nil {
			t.Fatal(err)
		}
		for what, err := range looks(t, d, ann, "web") {
			wantKind(t, what+" while it is paused", err, sandbox.Conflict)
		}
		if _, err := d.Start(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		for what, err := range looks(t, d, ann, "web") {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, err := range looks(t, d, bob, "web") {
			wantKind(t, what+" by another", err, sandbox.NotFound)
		}
		wantKind(t, "list that fails", d.ListDisk(t.Context(), ann, "web", "/fails", true, io.Discard), sandbox.Internal)
		var out strings.Builder
		if err := d.ListDisk(t.Context(), ann, "web", "/x", false, &out); err != nil || out.String() != "web/x" {
			t.Errorf("list: %q, %v", out.String(), err)
		}
		d.shutdown()
		w.check(t)
	})
}

// TestDiskHeldStill: a sandbox is not started while its disk is looked at.
func TestDiskHeldStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		wall := diskWall{sandboxtest.Suspender{Fake: w.fake}, make(chan struct{})}
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{wall}})
		create(t, d, sandbox.Spec{Name: "web"})
		if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		listed, started := make(chan error, 1), make(chan error, 1)
		go func() { listed <- d.ListDisk(context.Background(), ann, "web", "/", false, io.Discard) }()
		synctest.Wait()
		go func() { _, err := d.Start(context.Background(), ann, "web"); started <- err }()
		synctest.Wait()
		select {
		case err := <-started:
			t.Errorf("it was started meanwhile: %v", err)
		default:
		}
		close(wall.hold)
		if err := errors.Join(<-listed, <-started); err != nil {
			t.Error(err)
		}
		d.shutdown()
		w.check(t)
	})
}

func TestDiskOfNoWall(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		for what, err := range looks(t, d, ann, "web") {
			wantKind(t, what, err, sandbox.Unsupported)
		}
	})
}
