package console_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestPrintErrors: of several errors each is a line with a hint of its own.
func TestPrintErrors(t *testing.T) {
	one := sandbox.Errorf(sandbox.Exhausted, "the disk is full").WithHint("free some space")
	two := sandbox.Errorf(sandbox.Unavailable, "web is left").WithHint("carboy rm -f web")
	for name, tt := range map[string]struct {
		err  error
		json bool
		want string
	}{
		"one":   {one, false, "carboy: the disk is full\nhint: free some space\n"},
		"two":   {errors.Join(one, nil, two), false, "carboy: the disk is full\nhint: free some space\ncarboy: web is left\nhint: carboy rm -f web\n"},
		"about": {fmt.Errorf("undo: %w, %w", one, two), false, "carboy: undo: the disk is full, web is left\nhint: free some space\n"},
		"json":  {errors.Join(one, two), true, `{"error":"the disk is full\nweb is left","kind":"exhausted","hint":"free some space"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			c := &console.Console{Stderr: &stderr, JSON: tt.json}
			c.PrintError(tt.err)
			if got := stderr.String(); got != tt.want {
				t.Errorf("got\n%s, want\n%s", got, tt.want)
			}
		})
	}
}
