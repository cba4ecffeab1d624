package e2b_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// naming is a server of templates that names snapshots.
type naming map[string][]string

func (n naming) Resolve(context.Context, sandbox.Caller, string) (template.Build, error) {
	return template.BaseBuild(), nil
}

func (n naming) AddSnapshot(_ context.Context, _ sandbox.Caller, snap sandbox.Snapshot, name string) (template.Build, error) {
	if strings.ContainsAny(name, " ") {
		return template.Build{}, sandbox.Errorf(sandbox.Invalid, "name: not a name")
	}
	bare, tag, _ := strings.Cut(name, ":")
	if tag == "" {
		tag = "default"
	}
	n[snap.ID] = append(n[snap.ID], bare+":"+tag)
	return template.Build{Alias: bare}, nil
}

func (n naming) SnapshotNames(context.Context, sandbox.Caller) (map[string][]string, error) {
	return n, nil
}

func TestSnapshots(t *testing.T) {
	r := newRig(t)
	r.h = e2b.New(e2b.Options{Manager: r.fake, Templates: naming{}, Caller: func(*http.Request) e2b.Caller { return r.caller }})
	for range 2 {
		r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	}
	a, b := "/sandboxes/"+r.instances[0].ID, "/sandboxes/"+r.instances[1].ID
	type snapshot struct {
		SnapshotID string
		Names      []string
	}
	make := func(path, body string) (s snapshot) {
		t.Helper()
		if rec := r.json(t, "POST", path+"/snapshots", body, 201, &s); !strings.Contains(rec.Header().Get("Carboy-Notice"), "no processes") {
			t.Errorf("the notice is %q", rec.Header().Get("Carboy-Notice"))
		}
		return s
	}
	plain, named, tagged := make(a, `{}`), make(a, `{"name":"web"}`), make(b, `{"name":"web:v1"}`)
	if len(plain.Names) != 0 || !slices.Equal(named.Names, []string{"web"}) {
		t.Errorf("names %v and %v", plain.Names, named.Names)
	}
	list := func(query string) (ids []string, next string) {
		t.Helper()
		var got []snapshot
		rec := r.json(t, "GET", "/snapshots?"+query, "", 200, &got)
		for _, s := range got {
			ids = append(ids, s.SnapshotID)
		}
		return ids, rec.Header().Get("X-Next-Token")
	}
	p, n, v := plain.SnapshotID, named.SnapshotID, tagged.SnapshotID
	for query, want := range map[string][]string{
		"": {v, n, p}, "sandboxID=" + r.instances[0].ID: {n, p}, "name=web": {v, n}, "name=web:v1": {v}, "name=" + p: {p}, "name=none": nil,
	} {
		if got, next := list(query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	first, next := list("limit=2")
	second, end := list("limit=2&nextToken=" + next)
	if !slices.Equal(slices.Concat(first, second), []string{v, n, p}) || end != "" {
		t.Errorf("by pages: %v, %v, then %q", first, second, end)
	}
	for _, bad := range []string{"limit=0", "nextToken=x", "page=1"} {
		r.json(t, "GET", "/snapshots?"+bad, "", 400, nil)
	}
	r.json(t, "POST", a+"/snapshots", `{"name":"no name"}`, 400, nil)
	if got, _ := list(""); len(got) != 3 {
		t.Errorf("one that could not be named was left: %v", got)
	}
	r.json(t, "POST", a+"/snapshots", ``, 400, nil)
	r.caller.Owner = "key:b"
	r.json(t, "POST", a+"/snapshots", `{}`, 404, nil)
	if got, _ := list(""); len(got) != 0 {
		t.Errorf("another's are listed: %v", got)
	}
}

func TestSnapshotsWithoutNames(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	r.json(t, "POST", "/sandboxes/"+r.instances[0].ID+"/snapshots", `{"name":"web"}`, 501, nil)
	r.json(t, "POST", "/sandboxes/"+r.instances[0].ID+"/snapshots", `{}`, 201, nil)
	r.json(t, "GET", "/snapshots", "", 200, nil)
}

func TestFork(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60,"metadata":{"a":"b"},"envVars":{"K":"V"}}`, 201, nil)
	path := "/sandboxes/" + r.instances[0].ID
	r.full = 3
	var got []struct {
		Sandbox *struct{ SandboxID string }
		Error   *struct {
			Code    int
			Message string
		}
	}
	rec := r.json(t, "POST", path+"/fork", `{"count":3,"timeout":9}`, 201, &got)
	if !strings.Contains(rec.Header().Get("Carboy-Notice"), "no processes") {
		t.Errorf("the notice is %q", rec.Header().Get("Carboy-Notice"))
	}
	made, refused := 0, 0
	for _, one := range got {
		switch {
		case one.Sandbox != nil && one.Error == nil:
			made++
		case one.Sandbox == nil && one.Error != nil && one.Error.Code == 429:
			refused++
		}
	}
	if len(got) != 3 || made != 2 || refused != 1 {
		t.Errorf("%d made, %d refused: %s", made, refused, rec.Body)
	}
	for _, spec := range r.specs[1:] {
		if spec.Snapshot != r.saved[0].ID || spec.Labels["a"] != "b" || spec.Env["K"] != "V" || spec.TTL.Seconds() != 9 || spec.Name != "" {
			t.Errorf("a fork has the spec %+v", spec)
		}
	}
	if len(r.saved) != 1 || !r.saved[0].Removed {
		t.Errorf("snapshots of forks: %+v", r.saved)
	}
	for _, bad := range []string{`{"count":0}`, `{"count":101}`, `{"timeout":-1}`, `{"n":1}`} {
		r.json(t, "POST", path+"/fork", bad, 400, nil)
	}
	r.instances[0].State = sandbox.StateStopped
	r.json(t, "POST", path+"/fork", "", 409, nil)
	r.caller.Manage = false
	r.json(t, "POST", path+"/fork", "", 403, nil)
	if len(r.saved) != 1 {
		t.Error("what was refused was done")
	}
}
