package usage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestNamed(t *testing.T) {
	const id = "sb_aaaaaaaaaaaaaaaaaaaa"
	gone := sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found: %w", id, context.Canceled).WithHint("carboy rm -f %s", id)
	err := usage.Named(gone, id, "web")
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.NotFound || e.Msg != "sandbox web: not found: context canceled" || e.Hint != "carboy rm -f web" {
		t.Errorf("got %#v", err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Error("the cause is lost")
	}
	other := sandbox.Errorf(sandbox.NotFound, "sandbox db: not found")
	for _, same := range []error{nil, other, errors.New(id)} {
		if got := usage.Named(same, id, "web"); got != same { //nolint:errorlint // the very same
			t.Errorf("%v became %v", same, got)
		}
	}
}
