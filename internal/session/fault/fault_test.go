package fault_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

func TestMessages(t *testing.T) {
	fields := []sessions.Difference{{Field: "network", Is: "off", Asked: "on"}, {Field: "cpus", Is: 1.0, Asked: 2.0}, {Field: "host_path", Is: "", Asked: "/a b"}}
	for _, tt := range []struct {
		err  *sandbox.Error
		want string
	}{
		{fault.NotFound("a"), "session a not found"},
		{fault.ProcessNotFound("a", "default"), "session a has no managed process with process_id=default"},
		{fault.Capacity(64), "session capacity reached (64)"},
		{fault.Conflict("a", fields), `session a already exists with network=off (asked for on), cpus=1 (asked for 2), host_path=none (asked for /a b)`},
	} {
		if tt.err.Msg != tt.want {
			t.Errorf("got %q, want %q", tt.err.Msg, tt.want)
		}
	}
	c, ok := errors.AsType[*fault.ConflictError](error(fault.Conflict("a", fields)))
	if !ok || c.Session != "a" || !cmp.Equal(c.Fields, fields) {
		t.Errorf("ConflictError = %+v", c)
	}
}
