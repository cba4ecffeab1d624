package cli_test

import (
	"encoding/json"
	"net/http"
	"os"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk/sparse"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// diskRoutes are the disks of the fake's sandboxes.
func (d *fakeDaemon) diskRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/sandboxes/{id}/disk": d.onDisk(func(w http.ResponseWriter, r *http.Request) error {
			return json.NewEncoder(w).Encode(api.DiskListing{
				Entries: []action.Entry{{Path: r.URL.Query().Get("path") + "/a\nb", ArtifactType: "file", SizeBytes: 3}},
				Notes:   []string{"/mnt: it is the volume data, which is no part of this disk"},
			})
		}),
		"GET /v1/sandboxes/{id}/disk/file": d.onDisk(func(w http.ResponseWriter, _ *http.Request) error {
			return json.NewEncoder(w).Encode(action.ReadFileReply{Path: "/workspace/f", SizeBytes: 6, MaxBytes: 65536, Content: "Ynl0ZXP/", Encoding: "base64"})
		}),
		"GET /v1/sandboxes/{id}/disk/image": d.onDisk(func(w http.ResponseWriter, _ *http.Request) error {
			f, err := os.CreateTemp("", "image")
			if err != nil {
				return err
			}
			defer os.Remove(f.Name())
			defer f.Close()
			if _, err := f.WriteString("image\n"); err != nil {
				return err
			}
			return sparse.Write(w, f)
		}),
		"POST /v1/sandboxes/{id}/disk/scrub": d.onDisk(func(w http.ResponseWriter, _ *http.Request) error {
			enc := json.NewEncoder(w)
			for _, n := range []api.DiskNews{{Step: "copy", Total: 1}, {Step: "erase", Done: 1, Total: 2}, {Scrubbed: true}} {
				if err := enc.Encode(n); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func (d *fakeDaemon) onDisk(f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		sb, err := d.box(r)
		if err != nil {
			return err
		}
		if sb.State != "stopped" {
			return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it is %s, and only the disk of a stopped one can be looked at", sb.Name, sb.State).
				WithHint("carboy stop %s", sb.Name)
		}
		return f(w, r)
	}
}
