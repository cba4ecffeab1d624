package profile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/profile"
)

func TestClass(t *testing.T) {
	cause := func(k sandbox.Kind, err error) error { return &sandbox.Error{Kind: k, Msg: "m", Err: err} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), box.ClassError},
		{context.DeadlineExceeded, box.ClassError},
		{profile.Invalid("x"), box.ClassValidation},
		{sandbox.Errorf(sandbox.Denied, "x"), box.ClassValidation},
		{sandbox.Errorf(sandbox.Unsupported, "x"), box.ClassValidation},
		{sandbox.Errorf(sandbox.Exhausted, "x"), box.ClassCapacity},
		{sandbox.Errorf(sandbox.Unavailable, "x"), box.ClassError},
		{sandbox.Errorf(sandbox.NotFound, "x"), box.ClassError},
		{profile.SessionNotFound("a"), box.ClassSessionNotFound},
		{profile.ProcessNotFound("a", "b"), box.ClassProcessNotFound},
		{profile.ProcessConflict("a", "b", "is not running"), box.ClassProcessConflict},
		{profile.SessionCapacity(64), box.ClassCapacity},
		{profile.Conflict("a", nil), box.ClassSessionConflict},
		{cause(sandbox.Unavailable, profile.ErrBackend), box.ClassBackendUnavailable},
		{cause(sandbox.Unavailable, profile.ErrRuntime), box.ClassRuntimeUnavailable},
		{cause(sandbox.Denied, profile.ErrAdmission), box.ClassAdmission},
		{cause(sandbox.Unavailable, profile.ErrReadiness), box.ClassReadiness},
		{fmt.Errorf("while: %w", profile.SessionNotFound("a")), box.ClassSessionNotFound},
	} {
		if got := profile.Class(tt.err); got != tt.want {
			t.Errorf("Class(%v) = %q, want %q", tt.err, got, tt.want)
		}
		if tt.err == nil {
			continue
		}
		back := profile.FromClass(tt.want, "the text")
		if got := profile.Class(back); got != tt.want || back.Error() != "the text" {
			t.Errorf("FromClass(%q) = %v, of class %q", tt.want, back, got)
		}
	}
	if got := profile.Class(profile.FromClass("SomethingElse", "x")); got != box.ClassError {
		t.Errorf("an unknown class became %q", got)
	}
	if !errors.Is(profile.FromClass(box.ClassSessionNotFound, "x"), profile.ErrNotFound) {
		t.Error("a session that is not there lost its cause over the wire")
	}
}

func TestMessages(t *testing.T) {
	fields := []box.Difference{{Field: "network", Is: "off", Asked: "on"}, {Field: "cpus", Is: 1.0, Asked: 2.0}, {Field: "host_path", Is: "", Asked: "/a b"}}
	for _, tt := range []struct {
		err  *sandbox.Error
		want string
	}{
		{profile.SessionNotFound("a"), "session a not found"},
		{profile.ProcessNotFound("a", "default"), "session a has no managed process with process_id=default"},
		{profile.SessionCapacity(64), "Box session capacity reached (64)"},
		{profile.Conflict("a", fields), `Box session a already exists with network=off (asked for on), cpus=1 (asked for 2), host_path=none (asked for /a b)`},
	} {
		if tt.err.Msg != tt.want {
			t.Errorf("got %q, want %q", tt.err.Msg, tt.want)
		}
	}
	c, ok := errors.AsType[*profile.ConflictError](error(profile.Conflict("a", fields)))
	if !ok || c.Session != "a" || !cmp.Equal(c.Fields, fields) {
		t.Errorf("ConflictError = %+v", c)
	}
}
