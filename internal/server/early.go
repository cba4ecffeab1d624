package server

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
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
