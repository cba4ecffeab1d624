package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	volume1 = "vol_aaaaaaaaaaaaaaaaaaaa"
	volume2 = "vol_bbbbbbbbbbbbbbbbbbbb"
)

func volumeOf(ids ...string) sandbox.Spec {
	var s sandbox.Spec
	for _, id := range ids {
		s.Mounts = append(s.Mounts, sandbox.Mount{Volume: id, Target: "/mnt/" + id[:min(5, len(id))]})
	}
	return s
}

// workspaceOf is a sandbox whose workspace is a volume.
func workspaceOf(name, id string) sandbox.Spec {
	return sandbox.Spec{Name: name, Workspace: sandbox.Workspace{Volume: id}}
}

// cellar has ann's volumes.
type cellar []string

func (c cellar) Has(_ context.Context, owner, id string) error {
	if owner != ann.Owner || !slices.Contains(c, id) {
		return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", id)
	}
	return nil
}

func TestVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		opts := sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Volumes: cellar{volume1}}
		d := w.bootWith(t, opts)
		users := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(append([]string{}, want...), d.VolumeUsers(volume1)); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
		}
		users()
		spec := volumeOf(volume1)
		spec.Name = "one"
		create(t, d, spec)
		spec.Name = "two"
		create(t, d, spec)
		users("one", "two")
		create(t, d, workspaceOf("three", volume1))
		users("one", "three", "two")
		d.Remove(t.Context(), ann, "three", true)

		_, err := d.Create(t.Context(), ann, workspaceOf("", volume2), nil)
		wantKind(t, "Create over a volume that is not there", err, sandbox.NotFound)
		_, err = d.Create(t.Context(), sandbox.Caller{Owner: "uid:7"}, workspaceOf("", volume1), nil)
		wantKind(t, "Create over another's volume", err, sandbox.NotFound)
		_, err = d.Create(t.Context(), ann, volumeOf(volume2), nil)
		wantKind(t, "Create with a volume that is not there", err, sandbox.NotFound)
		_, err = d.Create(t.Context(), sandbox.Caller{Owner: "uid:7"}, volumeOf(volume1), nil)
		wantKind(t, "Create with another's volume", err, sandbox.NotFound)

		d.Stop(t.Context(), ann, "two")
		d.shutdown()
		d = w.bootWith(t, opts)
		users("one", "two")
		d.Remove(t.Context(), ann, "one", true)
		users("two")
		d.Remove(t.Context(), ann, "two", true)
		users()
		d.shutdown()
		w.check(t)
	})
}

// TestVolumeInHand: while somebody looks whether a volume is in use, none
// comes into use.
func TestVolumeInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		opts := sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Volumes: cellar{volume1}}
		d := w.bootWith(t, opts)
		created := make(chan error, 1)
		stop := errors.New("stop")
		err := d.WithVolumes(t.Context(), func(context.Context) error {
			go func() {
				_, err := d.Create(t.Context(), ann, volumeOf(volume1), nil)
				created <- err
			}()
			synctest.Wait()
			select {
			case err := <-created:
				t.Errorf("Create returned %v meanwhile", err)
			default:
			}
			if got := d.VolumeUsers(volume1); len(got) > 0 {
				t.Errorf("users = %v", got)
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Errorf("WithVolumes = %v", err)
		}
		if err := <-created; err != nil {
			t.Errorf("Create = %v", err)
		}
		d.shutdown()
		w.check(t)
	})
}

func TestNoVolumes(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		_, err := d.Create(t.Context(), ann, volumeOf(volume1), nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
	})
}

func TestVolumeID(t *testing.T) {
	id, err := sandbox.NewVolumeID(strings.NewReader("0123456789abcdef"))
	if err != nil || !sandbox.ValidVolumeID(id) {
		t.Errorf("NewVolumeID = %q, %v", id, err)
	}
	for _, bad := range []string{"", "vol_", "sb_" + id[4:], id + "a", "vol_../../../../../etc/x", strings.ToUpper(id)} {
		if sandbox.ValidVolumeID(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}
