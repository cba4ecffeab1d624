package inject

import (
	"io"
	"net/http"
)

// Stream wraps both ways of an upgraded connection, such as a WebSocket: up is
// where bytes to the upstream are written, down where those from it are read.
// header is that of the answer which upgraded it. Both fail with a *Refusal
// before a placeholder or a value is complete; Exchange.Refusal has it then.
//
// What up holds back at its end is never written: half a placeholder is of no
// use to anybody.
func (g *Guard) Stream(x *Exchange, header http.Header, up io.Writer, down io.Reader) (io.Writer, io.Reader) {
	if x == nil {
		return up, down
	}
	scan := func(m *matcher) scanner {
		if websocket(header) {
			return newFrames(m)
		}
		return newSearcher(m)
	}
	refuse := func(why *Refusal) func(outcome) *Refusal {
		return func(o outcome) *Refusal {
			if o == garbled {
				return x.refused(unreadable(http.StatusBadGateway, "the stream"))
			}
			return x.refused(why)
		}
	}
	if m := x.bodies; m != nil {
		up = &writer{dst: up, scan: scan(m), refuse: refuse(inBody("the stream"))}
	}
	if x.values != nil {
		down = &reader{src: io.NopCloser(down), scan: scan(x.values), ends: true, refuse: refuse(echoed("the stream"))}
	}
	return up, down
}
