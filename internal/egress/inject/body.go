package inject

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// Bounds of what is read of a request's body before it goes on.
const (
	maxBuffered = 1 << 20  // where a secret goes in, or the body is encoded
	maxDecoded  = 64 << 20 // of an encoded body
	maxAhead    = 64 << 10 // of one whose length is known, for an answer with a reason
)

// body is what becomes of a request's body.
type body struct {
	// whole is all of it, already searched; nil where it streams.
	whole []byte
	// stream takes its place, where it streams; nil leaves it as it is.
	stream io.ReadCloser
	closer io.Closer
}

// replace puts v in the place of u.
func (b *body) replace(u put, v string) {
	text := jsonText(v)
	if u.secret.Body != "" && !strings.HasPrefix(u.secret.Body, "/") {
		text = escapeQuery(v)
	}
	b.whole = append(append(bytes.Clone(b.whole[:u.start]), text...), b.whole[u.end:]...)
}

// apply gives r its body.
func (b *body) apply(r *http.Request) {
	switch {
	case b == nil:
	case b.stream != nil:
		r.Body = b.stream
		r.GetBody = nil
	case b.whole != nil:
		r.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(b.whole), b.closer}
		r.GetBody = nil
		if r.ContentLength >= 0 {
			r.ContentLength = int64(len(b.whole))
			if r.Header.Get("Content-Length") != "" {
				r.Header.Set("Content-Length", strconv.Itoa(len(b.whole)))
			}
		}
	}
}

// readBody reads what has to be read before the request goes on, searches it,
// and finds the places of secrets in it. What is not read is searched as it
// streams.
func (rw *rewrite) readBody() (*body, []put, *Refusal) {
	r := rw.r
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil, nil
	}
	names := codings(r.Header.Values("Content-Encoding"))
	if rw.x.bodies != nil {
		if why := refuseEncoding(r, names); why != nil {
			return nil, nil, why
		}
	}
	places := rw.bodyPlaces(names)
	switch {
	case len(places) > 0:
		return rw.placeInBody(places)
	case rw.x.state.search == nil:
		return nil, nil, nil
	case rw.x.bodies == nil:
	case len(names) > 0:
		b, why := rw.searchEncoded(names)
		return b, nil, why
	case r.ContentLength > 0 && r.ContentLength <= maxAhead && r.Header.Get("Expect") == "":
		b, why := rw.searchAhead()
		return b, nil, why
	}
	return &body{stream: &reader{
		src: r.Body, scan: rw.bodyScanner(),
		refuse: func(outcome) *Refusal { return rw.x.refused(inBody("the body")) },
		end: func() *Refusal {
			if why := rw.searchTrailer(); why != nil {
				return rw.x.refused(why)
			}
			return rw.foreignTrailer()
		},
	}}, nil, nil
}

func (rw *rewrite) bodyScanner() scanner {
	if rw.x.bodies == nil {
		return unsearched{}
	}
	return newSearcher(rw.x.bodies)
}

// unsearched is the scanner of what may hold anything.
type unsearched struct{}

func (unsearched) feed([]byte) outcome { return clean }
func (unsearched) held() int           { return 0 }
func (unsearched) end() outcome        { return clean }

// foreignTrailer refuses credentials among the trailers that came.
func (rw *rewrite) foreignTrailer() *Refusal {
	if len(rw.secrets) == 0 || rw.guest {
		return nil
	}
	for name, values := range rw.r.Trailer {
		if rw.credentialField(name) && hasValue(values) {
			return rw.x.refused(foreign("the trailer " + name))
		}
	}
	return nil
}

// refuseEncoding refuses a body whose encoding hides what is in it.
func refuseEncoding(r *http.Request, names []string) *Refusal {
	if !readable(names) {
		return unreadable(http.StatusUnsupportedMediaType, "the body's Content-Encoding")
	}
	for _, name := range []string{"Grpc-Encoding", "Connect-Content-Encoding"} {
		if len(codings(r.Header.Values(name))) > 0 {
			return unreadable(http.StatusUnsupportedMediaType, "the messages' "+name)
		}
	}
	for name := range r.Header {
		if field.Misspelt(name) {
			return unreadable(http.StatusUnsupportedMediaType, "a field that some take for another, "+name+",")
		}
	}
	return nil
}

// take reads the whole body, or refuses one that is too large.
func (rw *rewrite) take() (*body, *Refusal) {
	whole, err := io.ReadAll(io.LimitReader(rw.r.Body, maxBuffered+1))
	if err != nil {
		return nil, &Refusal{Code: "bad_request", Status: http.StatusBadRequest, Reason: "the body could not be read to its end"}
	}
	if len(whole) > maxBuffered {
		return nil, tooLarge("the body")
	}
	if rw.x.state.search != nil {
		if why := rw.searchTrailer(); why != nil {
			return nil, why
		}
	}
	if why := rw.foreignTrailer(); why != nil {
		return nil, why
	}
	return &body{whole: whole, closer: rw.r.Body}, nil
}

func (rw *rewrite) searchAhead() (*body, *Refusal) {
	b, why := rw.take()
	if why != nil {
		return nil, why
	}
	if searchWhole(rw.bodyScanner(), b.whole) == found {
		return nil, inBody("the body")
	}
	return b, nil
}

// searchEncoded reads an encoded body, and searches what it decodes to and
// what it is.
func (rw *rewrite) searchEncoded(names []string) (*body, *Refusal) {
	b, why := rw.searchAhead()
	if why != nil {
		return nil, why
	}
	d := &decoder{src: bytes.NewReader(b.whole), names: names}
	switch searchAll(d, rw.bodyScanner()) {
	case found:
		return nil, inBody("the body")
	case garbled:
		return nil, unreadable(http.StatusBadRequest, "the encoded body")
	case overlong:
		return nil, tooLarge("what the body decodes to")
	}
	return b, nil
}

// searchAll searches what r has, of which there may be maxDecoded.
func searchAll(r io.Reader, s scanner) outcome {
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := r.Read(buf)
		if o := s.feed(buf[:n]); o != clean {
			return o
		}
		switch total += n; {
		case total > maxDecoded:
			return overlong
		case errors.Is(err, io.EOF):
			if s.end() == found {
				return found
			}
			return clean
		case err != nil:
			return garbled
		}
	}
}

// bodyPlaces returns the secrets that may go into a body of this type.
func (rw *rewrite) bodyPlaces(names []string) (places []int) {
	if len(names) > 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(rw.r.Header.Get("Content-Type"))
	if err != nil {
		return nil
	}
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	for i, s := range rw.secrets {
		pointer := strings.HasPrefix(s.Body, "/")
		if s.Body != "" && (pointer && isJSON || !pointer && kind == "application/x-www-form-urlencoded") {
			places = append(places, i)
		}
	}
	return places
}
