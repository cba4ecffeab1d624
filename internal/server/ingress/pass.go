package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// watchBody has r's body remember whether all of it was read, and returns how
// to ask. Over HTTP/1 what is left of a body stands before the next request of
// its connection.
func watchBody(r *http.Request) (left func() bool) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return func() bool { return false }
	}
	b := &watchedBody{ReadCloser: r.Body}
	b.rest.Store(r.ContentLength)
	r.Body = b
	return func() bool { return b.rest.Load() != 0 }
}

// watchedBody counts down what is left; below 0 it is not known.
type watchedBody struct {
	io.ReadCloser
	rest atomic.Int64
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch rest := b.rest.Load(); {
	case errors.Is(err, io.EOF):
		b.rest.Store(0)
	case rest > 0:
		b.rest.Store(rest - int64(n))
	}
	return n, err
}

// endAfter has a connection end with an answer that came before the request's
// body was read, and say so: it does end, and a client that was not told would
// send its next request there.
func endAfter(resp *http.Response, left func() bool) {
	if resp.StatusCode >= http.StatusBadRequest && left() {
		resp.Header.Set("Connection", "close")
	}
}

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

const (
	tunnelWait = 1 << 10 // what a connection that waits holds
	tunnelMore = 32 << 10
)

// tunnels are buffers for connections that have more to say.
var tunnels = bufferPool{size: tunnelMore}

// tunnel is a guest's end of a connection that was upgraded. Most of them wait
// most of the time, and a small buffer is enough for that.
type tunnel struct{ io.ReadWriteCloser }

// WriteTo implements io.WriterTo.
func (t *tunnel) WriteTo(w io.Writer) (int64, error) { return pump(w, t.ReadWriteCloser) }

// ReadFrom implements io.ReaderFrom.
func (t *tunnel) ReadFrom(r io.Reader) (int64, error) { return pump(t.ReadWriteCloser, r) }

// pump copies as io.Copy does, but waits with a small buffer, and takes a
// large one only for as long as there is enough to fill the small one.
func pump(dst io.Writer, src io.Reader) (n int64, err error) {
	small := make([]byte, tunnelWait)
	var large []byte
	defer func() {
		if large != nil {
			tunnels.Put(large)
		}
	}()
	buf := small
	for {
		nr, rerr := src.Read(buf)
		if nr > 0 {
			nw, werr := dst.Write(buf[:nr])
			n += int64(nw)
			if werr != nil {
				return n, werr
			}
		}
		switch {
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, rerr
		case large == nil && nr == len(small):
			large = tunnels.Get()
			buf = large
		case large != nil && nr < len(small):
			tunnels.Put(large)
			large, buf = nil, small
		}
	}
}
