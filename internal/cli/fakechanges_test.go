package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func (d *fakeDaemon) changes(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	var req api.ChangesRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	if d.beforeChanges != nil {
		d.beforeChanges(b.dir)
	}
	return b.writeChanges(r.Context(), w, sandbox.ChangesOptions{
		Content: req.Content, Paths: req.Paths,
		Filter: sandbox.ChangesFilter{Ignore: req.Ignore, Prefix: req.Prefix, Tracked: req.Tracked, Exclude: req.Exclude, Only: req.Only},
	})
}

func (b *fakeBox) writeChanges(ctx context.Context, w interface{ Write([]byte) (int, error) }, o sandbox.ChangesOptions) error {
	dir, err := os.Open(b.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	src, err := workspace.Copy(dir, bytes.NewReader(b.manifest))
	if err != nil {
		return err
	}
	return workspace.WriteChanges(ctx, w, src, workspace.Options{ChangesOptions: o})
}
