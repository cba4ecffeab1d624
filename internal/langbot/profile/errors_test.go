package profile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
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
		{fault.Invalid("x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Denied, "x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Unsupported, "x"), langbot.ClassValidation},
		{sandbox.Errorf(sandbox.Exhausted, "x"), langbot.ClassCapacity},
		{sandbox.Errorf(sandbox.Unavailable, "x"), langbot.ClassError},
		{sandbox.Errorf(sandbox.NotFound, "x"), langbot.ClassError},
		{fault.NotFound("a"), langbot.ClassSessionNotFound},
		{fault.ProcessNotFound("a", "b"), langbot.ClassProcessNotFound},
		{fault.ProcessConflict("a", "b", "is not running"), langbot.ClassProcessConflict},
		{fault.Capacity(64), langbot.ClassCapacity},
		{fault.Conflict("a", nil), langbot.ClassSessionConflict},
		{cause(sandbox.Unavailable, fault.ErrBackend), langbot.ClassBackendUnavailable},
		{cause(sandbox.Unavailable, profile.ErrRuntime), langbot.ClassRuntimeUnavailable},
		{cause(sandbox.Denied, profile.ErrAdmission), langbot.ClassAdmission},
		{cause(sandbox.Unavailable, profile.ErrReadiness), langbot.ClassReadiness},
		{fmt.Errorf("while: %w", fault.NotFound("a")), langbot.ClassSessionNotFound},
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
	if !errors.Is(profile.FromClass(langbot.ClassSessionNotFound, "x"), fault.ErrNotFound) {
		t.Error("a session that is not there lost its cause over the wire")
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		err  *sandbox.Error
		want string
	}{
		{fault.NotFound("a"), "session a not found"},
		{fault.Capacity(64), "Box session capacity reached (64)"},
		{fault.ProcessCapacity(2), "Box managed process capacity reached (2)"},
		{fault.Conflict("a", []sessions.Difference{{Field: "cpus", Is: 1.0, Asked: 2.0}}), "Box session a already exists with cpus=1 (asked for 2)"},
	} {
		if got := profile.Text(tt.err); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
