package proxy

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// forward sends the request where it is for, and its answer back.
func (x *exchange) forward() *Refusal {
	up := upgradeOf(x.r)
	out, body, why := x.outgoing(up)
	if why != nil {
		return why
	}
	defer func() { _ = body.Close() }()
	if cn := x.cn.p.o.Guard; cn != nil {
		ctx := x.ctx
		if x.verdict.Route.AsksForSecret() {
			ctx = inject.WithConsent(ctx, x.askForSecret)
		}
		secrets, refused := cn.Request(ctx, out, x.verdict.Route)
		x.guarded(secrets)
		if refused != nil {
			return x.ofSecrets(refused)
		}
		// A Recheck that came before did not know what is used.
		if len(secrets.Used()) > 0 && x.recheck() {
			return x.failure()
		}
	}
	out.GetBody = body.again(out.Body)
	tr, err := x.cn.p.upstreams.to(x.target(out, up))
	if err != nil {
		return refuse(http.StatusBadGateway, CodeUpstream, err.Error())
	}
	if weak.On(weak.NetPoolShared) {
		out.URL.Host = "anyone" // which transports keep connections by
	}
	return x.send(out, up, tr)
}

// send sends a request, and the answer back.
func (x *exchange) send(out *http.Request, up string, to http.RoundTripper) *Refusal {
	if x.r.ProtoMajor == 1 {
		// An upstream may answer before the request has been sent whole.
		_ = http.NewResponseController(x.w).EnableFullDuplex()
	}
	defer x.watch()()
	informs := &informer{x: x}
	resp, err := to.RoundTrip(out.WithContext(httptrace.WithClientTrace(out.Context(), informs.trace())))
	informs.end()
	if err != nil {
		return x.unanswered(err)
	}
	defer func() {
		// The guest may not have sent all, nor be about to: without an end of
		// the request, closing would wait for what it has yet to send.
		x.cancel(nil)
		_ = resp.Body.Close()
	}()
	if why := x.failure(); why != nil { // an upstream may answer to the end of its request
		return why
	}
	return x.answer(resp, up, informs.conn.Load())
}

// unanswered says why there is no answer.
func (x *exchange) unanswered(err error) *Refusal {
	if why := x.failure(); why != nil {
		return why
	}
	if x.r.Context().Err() != nil {
		x.result, x.status = "the sandbox left", statusClientClosed
		panic(http.ErrAbortHandler)
	}
	if x.service != "" {
		return x.serviceFailed()
	}
	r := upstreamFailed(err, x.host())
	r.Rule = x.verdict.Rule
	return r
}

// outgoing makes the request that goes upstream: the guest's, without what is
// between it and the gate alone. Its header is its own.
func (x *exchange) outgoing(up string) (*http.Request, *upload, *Refusal) {
	r := x.r
	if why := trailersOf(r); why != nil {
		return nil, nil, why
	}
	header := r.Header.Clone()
	te := slices.ContainsFunc(header["Te"], func(v string) bool { return httpguts.HeaderValuesContainsToken([]string{v}, "trailers") })
	dropHops(header)
	if te {
		header["Te"] = []string{"trailers"}
	}
	if up != "" {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{up}
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // none is added
	}
	u := &url.URL{
		Scheme: "http", Host: x.authority(), Path: r.URL.Path, RawPath: r.URL.RawPath,
		RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
	}
	if x.cn.tls {
		u.Scheme = "https"
	}
	out := &http.Request{
		Method: r.Method, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: r.ContentLength, Trailer: r.Trailer, Body: http.NoBody,
	}
	body := &upload{x: x, body: r.Body}
	if r.ContentLength != 0 {
		out.Body = body
	}
	return out.WithContext(x.ctx), body, nil
}

// trailersOf has a chunked request's trailer fields arrive in r.Trailer, also
// those that were not announced.
func trailersOf(r *http.Request) *Refusal {
	if r.ContentLength == -1 && r.Trailer == nil && r.ProtoMajor == 1 {
		r.Trailer = http.Header{}
	}
	for name := range r.Trailer {
		if !trailerAllowed(name) {
			return badRequest("a trailer field that belongs into the head")
		}
	}
	return nil
}

// authority is the request's host as it goes upstream.
func (x *exchange) authority() string {
	if x.r.Host != "" {
		return x.r.Host
	}
	return net.JoinHostPort(x.dst.Addr().String(), portText(x.dst.Port()))
}

// target is where the request goes, and what may go there with it.
func (x *exchange) target(out *http.Request, up string) target {
	t := target{dial: x.addrs, destination: destination{addrs: addrsText(x.addrs), tls: x.cn.tls}}
	t.protocol = http1
	switch {
	case up != "" || x.r.ProtoMajor == 1:
	case !x.cn.tls || isGRPC(out.Header):
		t.protocol = http2
	default:
		t.protocol = http2or1
	}
	if x.cn.tls {
		t.name = x.host()
	}
	if route := x.verdict.Route; route != nil {
		if route.Roots != "" && x.cn.tls {
			t.roots = route.Roots
			t.destination.roots = sha256.Sum256([]byte(route.Roots))
		}
		if len(route.Secrets) > 0 {
			t.rule = route.Rule
		}
	}
	return t
}

// informer passes on the informational answers of an upstream, but for the
// one word to go on: that is said when the body is read.
type informer struct {
	x     *exchange
	conn  atomic.Pointer[net.Conn] // that the request was sent on last
	mu    sync.Mutex
	ended bool // guarded by mu
}

func (i *informer) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		Got1xxResponse: i.inform,
		GotConn:        func(c httptrace.GotConnInfo) { i.conn.Store(&c.Conn) },
	}
}

func (i *informer) inform(code int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	if why := i.x.secrets.Header(http.Header(header)); why != nil {
		r := i.x.ofSecrets(why)
		i.x.fail(r)
		return r
	}
	h := i.x.w.Header()
	for name, values := range cleaned(http.Header(header)) {
		h[name] = values
	}
	i.x.w.WriteHeader(code)
	clear(h)
	return nil
}

// end returns once no more is passed on.
func (i *informer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
}

// answer sends an upstream's answer to the guest.
func (x *exchange) answer(resp *http.Response, up string, conn *net.Conn) *Refusal {
	if resp.StatusCode < 100 || resp.StatusCode == http.StatusSwitchingProtocols && up == "" {
		return refuse(http.StatusBadGateway, CodeUpstream, shown(x.host())+" answered with a status that can't be")
	}
	if why := x.checkAnswer(resp); why != nil {
		return why
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.upgrade(resp, up, conn)
	}
	head := x.w.Header()
	for name, values := range cleaned(resp.Header) {
		head[name] = values
	}
	if _, ok := head["Content-Type"]; !ok {
		head["Content-Type"] = nil // none is guessed
	}
	for name := range resp.Trailer {
		head.Add("Trailer", name)
	}
	x.status, x.begun = resp.StatusCode, true
	x.w.WriteHeader(resp.StatusCode)
	err := x.download(resp, aheadOf(resp, conn))
	// An upstream may end its answer well once it sees that it is hung up on.
	if err != nil || x.failure() != nil {
		x.broken(err)
	}
	for name, values := range resp.Trailer {
		if httpguts.ValidTrailerHeader(name) {
			head[http.TrailerPrefix+name] = values
		}
	}
	return nil
}

// checkAnswer applies the guard and the rule's limits to an answer.
func (x *exchange) checkAnswer(resp *http.Response) *Refusal {
	if cn := x.cn.p.o.Guard; cn != nil {
		if why := cn.Response(resp, x.secrets); why != nil {
			return x.ofSecrets(why)
		}
	}
	if most := x.limits.ResponseBytes; most > 0 && resp.ContentLength > most && x.r.Method != http.MethodHead {
		return tooMuch(x.verdict.Rule, "the answer's body is larger than its rule allows")
	}
	return nil
}

// unbuffered is the size from which on net/http holds nothing back of what is
// written, but for the end of a chunk's framing.
const unbuffered = 8 << 10

// download copies an answer's body. What streams is passed on as it comes:
// where the length is known, all that is left is awaited only once it flows.
func (x *exchange) download(resp *http.Response, more *ahead) error {
	control := http.NewResponseController(x.w)
	if resp.ContentLength < 0 {
		_ = control.Flush() // the head: its body may be long in coming
	}
	var buf buffer
	defer buf.release()
	for {
		room := buf.room()
		n, err := more.read(resp.Body, room)
		if n > 0 {
			total := x.received.Add(int64(n))
			if why := x.spend(int64(n), total, x.limits.ResponseBytes, "the answer's body is larger than its rule allows"); why != nil {
				x.fail(why)
				return why
			}
			if err := x.cn.together(n, func() error { _, err := x.w.Write(room[:n]); return err }); err != nil {
				return err
			}
			if total != resp.ContentLength && n < unbuffered {
				_ = control.Flush()
			}
			buf.used(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// broken ends an answer that can't be finished so that the guest sees that it
// was not: the connection or the stream is reset.
func (x *exchange) broken(err error) {
	switch why := x.failure(); {
	case why != nil:
		x.note(why)
	case x.r.Context().Err() != nil:
		x.result = "the sandbox left"
	default:
		x.result = "the answer broke off"
	}
	_ = err // it may quote what the upstream sent
	if !x.r.ProtoAtLeast(1, 1) {
		x.cn.cut.Store(true) // an answer there may have no end but the connection's
	}
	panic(http.ErrAbortHandler)
}

// hops are fields that are for the next hop alone (RFC 9110, 7.6.1), and those
// of proxies.
var hops = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization", "Http2-Settings",
}

// dropHops takes hop-by-hop fields out of h.
func dropHops(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name != "" {
				delete(h, http.CanonicalHeaderKey(name))
			}
		}
	}
	for _, name := range hops {
		delete(h, name)
	}
}

// cleaned takes out of an answer's header what is not for the guest: hop-by-hop
// fields, and what would lead it to QUIC.
func cleaned(h http.Header) http.Header {
	dropHops(h)
	delete(h, "Alt-Svc")
	return h
}

// isGRPC reports whether a request is one of gRPC, not of gRPC-Web.
func isGRPC(h http.Header) bool {
	t := strings.ToLower(h.Get("Content-Type"))
	return t == "application/grpc" || strings.HasPrefix(t, "application/grpc+") || strings.HasPrefix(t, "application/grpc;")
}

// upgradeOf returns the protocol that a request wants its connection to become,
// "" for none. One that would be HTTP or TLS again is ignored, as any upgrade
// may be: what went over it would be read by nobody.
func upgradeOf(r *http.Request) string {
	if r.ProtoMajor != 1 || r.ProtoMinor == 0 || !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") {
		return ""
	}
	to := r.Header["Upgrade"]
	if len(to) != 1 {
		return ""
	}
	low := strings.ToLower(to[0])
	for _, closed := range []string{"h2", "http", "tls", ","} {
		if strings.HasPrefix(low, closed) || closed == "," && strings.Contains(low, ",") {
			return ""
		}
	}
	return to[0]
}
