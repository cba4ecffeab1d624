package cli_test

import (
	"bytes"
	"context"
	"net/http"
	"os"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func (d *fakeDaemon) changes(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if d.beforeChanges != nil {
		d.beforeChanges(b.dir)
	}
	return b.writeChanges(r.Context(), w, sandbox.ChangesOptions{Content: q.Get("content") != "", Paths: q["path"]})
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
