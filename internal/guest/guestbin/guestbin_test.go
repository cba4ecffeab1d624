package guestbin_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/guestbin"
)

// It holds either way: with the agent built, or on a clean checkout.
func TestBinary(t *testing.T) {
	data, err := guestbin.Binary()
	digest, derr := guestbin.Digest()
	if got := guestbin.Built(); got != (err == nil) {
		t.Errorf("Built says %v, Binary %v", got, err)
	}
	if err != nil {
		if !errors.Is(err, guestbin.ErrNotBuilt) || !errors.Is(derr, guestbin.ErrNotBuilt) {
			t.Errorf("Binary: %v, Digest: %v; want ErrNotBuilt", err, derr)
		}
		return
	}
	if !bytes.HasPrefix(data, []byte("\x7fELF")) {
		t.Error("the agent is no executable")
	}
	if limit := 27 << 19; len(data) > limit { // of that 1.5 MiB are sudo
		t.Errorf("the agent has %d bytes, more than %d", len(data), limit)
	}
	if len(digest) != 64 || derr != nil {
		t.Errorf("Digest = %q, %v", digest, derr)
	}
}
