package e2b_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// cellar keeps volumes in memory.
type cellar struct {
	all  []volume.Volume
	busy string // the ID of one that is in use
}

func (c *cellar) Create(_ context.Context, who sandbox.Caller, n volume.New) (volume.Volume, error) {
	if _, err := c.Get(context.Background(), who, n.Name); err == nil {
		return volume.Volume{}, sandbox.Errorf(sandbox.Conflict, "volume %s: the name is taken", n.Name)
	}
	id := "vol_aaaaaaaaaaaaaaaaaaa" + string(rune('a'+len(c.all)))
	v := volume.Volume{ID: id, Owner: who.Owner, Name: n.Name}
	c.all = append(c.all, v)
	return v, nil
}

func (c *cellar) List(_ context.Context, who sandbox.Caller) (own []volume.Volume) {
	for _, v := range c.all {
		if v.Owner == who.Owner {
			own = append(own, v)
		}
	}
	return own
}

func (c *cellar) Get(ctx context.Context, who sandbox.Caller, ref string) (volume.Volume, error) {
	for _, v := range c.List(ctx, who) {
		if v.ID == ref || v.Name == ref {
			return v, nil
		}
	}
	return volume.Volume{}, sandbox.Errorf(sandbox.NotFound, "volume %s: not found", ref)
}

func (c *cellar) Remove(_ context.Context, _ sandbox.Caller, ref string) error {
	if ref == c.busy {
		return sandbox.Errorf(sandbox.Conflict, "volume %s: it is in use", ref)
	}
	for i, v := range c.all {
		if v.ID == ref {
			c.all = append(c.all[:i], c.all[i+1:]...)
		}
	}
	return nil
}

func (c *cellar) Token(v volume.Volume, _ string) string { return "token-of-" + v.Name }

func newVolumeRig(t *testing.T) (*rig, *cellar) {
	r, c := newRig(t), &cellar{}
	r.h = e2b.New(e2b.Options{Manager: r.fake, Volumes: c, Caller: func(*http.Request) e2b.Caller { return r.caller }})
	return r, c
}

func TestVolumes(t *testing.T) {
	r, c := newVolumeRig(t)
	const id = "vol_aaaaaaaaaaaaaaaaaaaa"
	full := map[string]any{"volumeID": id, "name": "data", "token": "token-of-data"}
	check := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	var got map[string]any
	r.json(t, "POST", "/volumes", `{"name":"data"}`, 201, &got)
	check("created", full, got)
	r.json(t, "POST", "/volumes", `{"name":"data"}`, 400, nil)
	r.json(t, "POST", "/volumes", `{"name":"x","size":1}`, 400, nil)
	got = nil
	r.json(t, "GET", "/volumes/"+id, "", 200, &got)
	check("looked at", full, got)
	var list []any
	r.json(t, "GET", "/volumes", "", 200, &list)
	check("list", []any{map[string]any{"volumeID": id, "name": "data"}}, list)
	r.json(t, "GET", "/volumes/data", "", 404, nil) // by ID alone

	r.caller.Exec = false
	got = nil
	r.json(t, "GET", "/volumes/"+id, "", 200, &got)
	check("without the scope to move files", map[string]any{"volumeID": id, "name": "data", "token": ""}, got)
	r.caller.Manage = false
	r.json(t, "DELETE", "/volumes/"+id, "", 403, nil)
	r.json(t, "POST", "/volumes", `{"name":"more"}`, 403, nil)
	r.caller.Manage = true

	owner := r.caller.Owner
	r.caller.Owner = "key:another"
	r.json(t, "GET", "/volumes/"+id, "", 404, nil)
	r.json(t, "DELETE", "/volumes/"+id, "", 404, nil)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/d"}]}`, 400, nil)
	r.caller.Owner = owner

	c.busy = id
	r.json(t, "DELETE", "/volumes/"+id, "", 409, nil)
	c.busy = ""
	r.json(t, "DELETE", "/volumes/"+id, "", 204, nil)
	r.json(t, "DELETE", "/volumes/"+id, "", 404, nil)
}

func TestVolumeMounts(t *testing.T) {
	r, _ := newVolumeRig(t)
	r.json(t, "POST", "/volumes", `{"name":"data"}`, 201, nil)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/d"}]}`, 201, nil)
	want := []sandbox.Mount{{Volume: "vol_aaaaaaaaaaaaaaaaaaaa", VolumeName: "data", Target: "/mnt/d"}}
	if diff := cmp.Diff(want, r.specs[0].Mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	shown := []any{map[string]any{"name": "data", "path": "/mnt/d"}}
	var detail map[string]any
	r.json(t, "GET", "/sandboxes/"+r.instances[0].ID, "", 200, &detail)
	var list []map[string]any
	r.json(t, "GET", "/v2/sandboxes", "", 200, &list)
	for what, got := range map[string]any{"detail": detail["volumeMounts"], "list": list[0]["volumeMounts"]} {
		if diff := cmp.Diff(any(shown), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"none","path":"/mnt/d"}]}`, 400, nil)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/d","mode":"ro"}]}`, 400, nil)
}
