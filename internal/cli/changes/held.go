package changes

import (
	"errors"
	"io"
	"sync/atomic"
)

// heldStream is a stream of changes. The sandbox's commands are held still until it is closed, or says after its end that
// they go on.
type heldStream struct {
	io.ReadCloser
	over atomic.Bool
}

// ended says that the stream's end was read: what comes now is told by still.
func (h *heldStream) ended() {
	go func() { // until it is closed
		var b [1]byte
		if n, err := h.Read(b[:]); n > 0 || !errors.Is(err, io.EOF) {
			h.over.Store(true)
		}
	}()
}

// still reports whether what could move on in the sandbox is held, or nothing could.
func (h *heldStream) still() bool { return !h.over.Load() }
