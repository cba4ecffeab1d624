package profile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestClass(t *testing.T) {
	cause := func(k sandbox.Kind, err error) error { return &sandbox.Error{Kind: k, Msg: "m", Err: err} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), langbot.ClassError},
		{context.DeadlineExceeded, langbot.ClassError},
		{profile.Invalid("x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Denied, "x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Unsupported, "x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Exhausted, "x"), langbot.ClassCapacity},
		{sandbox.Errorf(sandbox.Unavailable, "x"), langbot.ClassError},
		{sandbox.Errorf(sandbox.NotFound, "x"), langbot.ClassError},
		{profile.SessionNotFound("a"), langbot.ClassSessionNotFound},
		{profile.ProcessNotFound("a", "b"), langbot.ClassProcessNotFound},
		{profile.ProcessConflict("a", "b", "is not running"), langbot.ClassProcessConflict},
		{profile.SessionCapacity(64), langbot.ClassCapacity},
		{profile.Conflict("a", nil), langbot.ClassSessionConflict},
		{cause(sandbox.Unavailable, profile.ErrBackend), langbot.ClassBackendUnavailable},
		{cause(sandbox.Unavailable, profile.ErrRuntime), langbot.ClassRuntimeUnavailable},
		{cause(sandbox.Denied, profile.ErrAdmission), langbot.ClassAdmission},
		{cause(sandbox.Unavailable, profile.ErrReadiness), langbot.ClassReadiness},
		{fmt.Errorf("while: %w", profile.SessionNotFound("a")), langbot.ClassSessionNotFound},
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
	if got := profile.Class(profile.FromClass("SomethingElse", "x")); got != langbot.ClassError {
		t.Errorf("an unknown class became %q", got)
	}
	if !errors.Is(profile.FromClass(langbot.ClassSessionNotFound, "x"), profile.ErrNotFound) {
		t.Error("a session that is not there lost its cause over the wire")
	}
}

func TestMessages(t *testing.T) {
	fields := []sessions.Difference{{Field: "network", Is: "off", Asked: "on"}, {Field: "cpus", Is: 1.0, Asked: 2.0}, {Field: "host_path", Is: "", Asked: "/a b"}}
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
