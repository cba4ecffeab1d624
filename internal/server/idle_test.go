package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/volume"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
)

// idleRoles do nothing.
type idleRoles struct{ origin.Runner }

func (idleRoles) Rootless() bool { return false }

func (idleRoles) Run(context.Context, string, io.Reader, io.Writer, ...*os.File) error { return nil }

// fakePods are one pod of an owner's, whatever becomes of it.
type fakePods struct{ owner string }

func (f fakePods) find(c sandbox.Caller) (service.Pod, error) {
	if c.Owner != f.owner {
		return service.Pod{}, sandbox.Errorf(sandbox.NotFound, "no spawned pod named `writer`")
	}
	return service.Pod{Pod: record.Pod{Name: "writer", State: record.Live}}, nil
}

func (f fakePods) Spawn(_ context.Context, c sandbox.Caller, _ service.Spawn) (service.Pod, []string, error) {
	p, err := f.find(c)
	return p, nil, err
}

func (f fakePods) List(_ context.Context, c sandbox.Caller) ([]service.Pod, error) {
	p, err := f.find(c)
	if err != nil {
		return nil, nil
	}
	return []service.Pod{p}, nil
}

func (f fakePods) Get(_ context.Context, c sandbox.Caller, _ string) (service.Pod, error) {
	return f.find(c)
}

func (f fakePods) Send(_ context.Context, c sandbox.Caller, _, _ string) error {
	_, err := f.find(c)
	return err
}

func (f fakePods) Output(_ context.Context, c sandbox.Caller, _ string, _ int, _ bool) (service.Output, error) {
	_, err := f.find(c)
	return service.Output{Text: "said"}, err
}

func (f fakePods) Connect(_ context.Context, c sandbox.Caller, _ string) (net.Conn, error) {
	_, err := f.find(c)
	near, far := net.Pipe()
	far.Close()
	return near, err
}

func (f fakePods) Stop(_ context.Context, c sandbox.Caller, _ string) ([]scope.Rule, error) {
	_, err := f.find(c)
	return nil, err
}

type noGuest struct{ template.Guest }

func (noGuest) Close() {}

func (w *estate) furnish(t *testing.T, dir string, m *sandbox.Manager, o *server.Options, d *e2b.Options) {
	db, err := store.Open(t.Context(), filepath.Join(dir, "templates.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := template.New(template.Options{
		Store: db.Templates(), Manager: m, Dir: dir,
		Guest: func(func(context.Context) (net.Conn, error)) template.Guest { return noGuest{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	v, err := volume.Open(volume.Options{
		State: filepath.Join(dir, "state"), Cache: filepath.Join(dir, "cache"), Size: volume.MinSize,
		Launch: func(*exec.Cmd) error { return errors.New("no process") }, Roles: idleRoles{},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Bind(m)
	t.Cleanup(v.Close)
	o.Templates, o.TemplateCache, o.Volumes, o.Approvals, o.Pods = s, s, v, asked(db, acme, 2), fakePods{acme}
	d.Templates, d.Volumes = s, v
	o.Sessions = &fakeSessions{keys: map[string]bool{acme + " alice": true, acme + " bob": true, acme + " carol": true}}
}
