package process

import (
	"math"
	"net/http"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
)

// maxMessage bounds one message of a caller, in bytes.
const maxMessage = 8 << 20

// Register adds the engine's two services to mux.
func (e *Engine) Register(mux *http.ServeMux) {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		// The channel is a socket on one machine: compressing costs more
		// than it saves. Requests may still be compressed.
		connect.WithCompressMinBytes(math.MaxInt),
	}
	mux.Handle(processconnect.NewProcessHandler(newEnvdService(e), opts...))
	mux.Handle(guestv1connect.NewExecServiceHandler(newExecService(e), opts...))
}
