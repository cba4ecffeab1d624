package server_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/server"
)

// What writes to a sandbox's disk takes more than reading does.
func TestWholeChangesAreManaged(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	path := w.names.Replace("/v1/sandboxes/BOX/changes")
	w.want(t, 403, "only read", "POST", path, `{"whole":true}`)
	w.want(t, 409, "only read", "POST", path, `{}`) // the control: it is no view
	w.want(t, 409, "ours", "POST", path, `{"whole":true}`)
	w.want(t, 409, "ours", "POST", path, `{"whole":true,"hold":true}`)
	w.want(t, 400, "ours", "POST", path, `{"hold":true}`)
}
