package exit_test

import (
	"io"
	"testing"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestExitOf(t *testing.T) {
	tests := []struct {
		name string
		exit *guestv1.Exit
		want int
	}{
		{"nothing", nil, 125},
		{"exited", &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 255}, 255},
		{"signalled", &guestv1.Exit{Reason: guestv1.Reason_REASON_SIGNALLED, Code: 143, Signal: 15}, 143},
		{"timed-out", &guestv1.Exit{Reason: guestv1.Reason_REASON_TIMED_OUT, Code: 137}, 124},
		{"out-of-memory", &guestv1.Exit{Reason: guestv1.Reason_REASON_OUT_OF_MEMORY}, 137},
		{"killed", &guestv1.Exit{Reason: guestv1.Reason_REASON_KILLED}, 137},
		{"no-command", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED, Code: 127}, 127},
		{"no-exec", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED, Code: 126}, 126},
		{"not-started", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED}, 125},
		{"newer-guest", &guestv1.Exit{Reason: 99, Code: 3}, 125},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := exit.Of(tt.exit); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	if got := exit.Code(nil); got != 0 {
		t.Errorf("no error is %d", got)
	}
	for _, err := range []error{
		io.ErrUnexpectedEOF, sandbox.Errorf(sandbox.NotFound, "x"), sandbox.Errorf("of a newer daemon", "x"),
	} {
		if got := exit.Code(err); got != 125 {
			t.Errorf("%v is %d", err, got)
		}
	}
}
