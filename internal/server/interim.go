package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// maxInterim is how many answers of status 1xx may come before an answer.
const maxInterim = 8

// quiet keeps a guest's "100 Continue" back. It lets the body be read, and
// net/http says it then to a caller who waits for it: passed on as well, it
// would be said twice, or to one who did not ask.
// Of the others it takes out what only the daemon may say.
type quiet struct {
	http.ResponseWriter
	clean func(http.Header)
}

func (q quiet) WriteHeader(status int) {
	if status < 200 && !weak.On(weak.ServerAnswersRaw) {
		q.clean(q.Header())
	}
	if status != http.StatusContinue {
		q.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (q quiet) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// boundInterim bounds how many answers of status 1xx a guest may send to one
// request: each is passed on, and there is no end to them otherwise.
func boundInterim(ctx context.Context) context.Context {
	n := 0 // called by one goroutine
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			if n++; n > maxInterim {
				return fmt.Errorf("more than %d answers of status 1xx", maxInterim)
			}
			return nil
		},
	})
}
