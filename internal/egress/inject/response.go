package inject

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Response searches an answer for the values of the secrets of its route,
// decoded. It changes resp's Body, and where that was encoded its header and
// ContentLength: what was decoded goes on decoded. resp.Trailer must be the map
// that resp.Body fills. Where it refuses, nothing of resp must go on; the
// caller closes its body.
//
// Reading resp.Body may fail with a *Refusal later, before a value is
// complete. Exchange.Refusal has it then.
func (g *Guard) Response(resp *http.Response, x *Exchange) *Refusal {
	if x == nil || x.values == nil {
		return nil
	}
	if why := x.checkResponse(resp); why != nil {
		return x.refused(why)
	}
	return nil
}

func (x *Exchange) checkResponse(resp *http.Response) *Refusal {
	if x.values.within(resp.Status) {
		return echoed("the answer's status line")
	}
	if why := x.Header(resp.Header); why != nil {
		return why
	}
	if why := x.Header(resp.Trailer); why != nil {
		return why
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !searchable(resp.Header) {
			return unreadable(http.StatusBadGateway, "what the connection has become")
		}
		if websocket(resp.Header) && len(resp.Header.Values("Sec-Websocket-Extensions")) > 0 {
			return unreadable(http.StatusBadGateway, "the WebSocket's extension")
		}
		return nil
	}
	if resp.StatusCode == http.StatusPartialContent && !weak.On(weak.NetPartsPass) {
		return &Refusal{Code: CodeRange, Status: http.StatusBadGateway, Reason: "the answer is a part that was not asked for"}
	}
	for _, name := range []string{"Grpc-Encoding", "Connect-Content-Encoding"} {
		if len(codings(resp.Header.Values(name))) > 0 {
			return unreadable(http.StatusBadGateway, "the answer's "+name)
		}
	}
	names := codings(resp.Header.Values("Content-Encoding"))
	if !readable(names) {
		return unreadable(http.StatusBadGateway, "the answer's Content-Encoding")
	}
	return x.wrapResponse(resp, names)
}

// wrapResponse has the body searched. What is short and of known length is
// searched at once, so that there can be an answer with a reason.
func (x *Exchange) wrapResponse(resp *http.Response, names []string) *Refusal {
	if resp.Body == nil || resp.Body == http.NoBody || bodyless(resp) {
		return nil
	}
	src := resp.Body
	if len(names) > 0 {
		src = struct {
			io.Reader
			io.Closer
		}{&decoder{src: src, names: names}, src}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.Uncompressed = true
	}
	r := &reader{
		src: src, scan: newSearcher(x.values), ends: true,
		refuse: func(outcome) *Refusal { return x.refused(echoed("the answer's body")) },
		end:    func() *Refusal { return x.Header(resp.Trailer) },
	}
	length := resp.ContentLength
	resp.Body = r
	if len(names) > 0 {
		resp.ContentLength = -1
	}
	if length <= 0 || length > maxAhead || len(names) > 0 {
		return nil
	}
	return ahead(resp, r, int(length))
}

// ahead reads length bytes and has them read again. An error is met again
// after them; a refusal is returned.
func ahead(resp *http.Response, r *reader, length int) *Refusal {
	buf := make([]byte, length)
	n, err := io.ReadFull(r, buf)
	if why, ok := err.(*Refusal); ok { //nolint:errorlint // the reader's own, never wrapped
		return why
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(buf[:n]), r), r}
	return nil
}

// bodyless reports whether an answer has no body, whatever its fields say.
func bodyless(resp *http.Response) bool {
	return resp.Request != nil && resp.Request.Method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// Header searches a header or trailer that goes to the guest: Response does,
// so it is for informational answers.
func (x *Exchange) Header(h http.Header) *Refusal {
	if x == nil || x.values == nil {
		return nil
	}
	for name, values := range h {
		if x.values.within(values...) || x.named(name) {
			return x.refused(echoed("a field of the answer"))
		}
	}
	return nil
}

// named reports whether a field's name holds a value, whose case and
// separators names lose on their way.
func (x *Exchange) named(name string) bool {
	folded := field.Fold(name)
	return slices.ContainsFunc(x.known, func(v string) bool { return strings.Contains(folded, field.Fold(v)) }) || x.values.in(name)
}
