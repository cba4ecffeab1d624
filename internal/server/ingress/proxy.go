package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	guestIdle       = 90 * time.Second
	guestIdleConns  = 256 // of all guests
	guestIdlePer    = 16  // of one sandbox's agent
	guestMaxHeader  = 64 << 10
	guestBufferSize = 32 << 10
	// portBufferSize is for ports: many of their streams wait for most of their
	// time, and each holds its buffers meanwhile.
	portBufferSize = 8 << 10
	// portDial bounds how long a port may take to be reached.
	portDial = 30 * time.Second
	// portContinue is how long a body waits for "100 Continue" where its sender
	// asked for it.
	portContinue = time.Second
)

// guestProxy carries requests to guests. Connections to guest agents are
// pooled by sandbox and how often it was started, so that none leads to an instance
// that is gone; what a guest closes, or leaves unused, leaves the pool. Those
// to ports are never used twice: what listens there comes and goes, and
// nothing that it says may become another request's answer.
type guestProxy struct {
	h1, h2         *http.Transport // to agents
	port1, port2   *http.Transport // to ports
	log            *slog.Logger
	pool, portPool bufferPool
}

func newGuestProxy(m Manager, log *slog.Logger) *guestProxy {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		id, port, err := splitGuestAddr(addr)
		if err != nil {
			return nil, err
		}
		return m.Dial(ctx, anyone, id, port)
	}
	agent := func(h2 bool) *http.Transport {
		return &http.Transport{
			DialContext: dial, Protocols: protocols(h2), DisableCompression: true,
			MaxIdleConns: guestIdleConns, MaxIdleConnsPerHost: guestIdlePer, IdleConnTimeout: guestIdle,
			MaxResponseHeaderBytes: guestMaxHeader, WriteBufferSize: guestBufferSize, ReadBufferSize: guestBufferSize,
		}
	}
	port := func(h2 bool) *http.Transport {
		return &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, portDial)
				defer cancel()
				return dial(ctx, network, addr)
			},
			Protocols: protocols(h2), DisableCompression: true, DisableKeepAlives: true,
			MaxResponseHeaderBytes: guestMaxHeader, ExpectContinueTimeout: portContinue,
		}
	}
	return &guestProxy{
		h1: agent(false), h2: agent(true), port1: port(false), port2: port(true), log: log,
		pool: bufferPool{size: guestBufferSize}, portPool: bufferPool{size: portBufferSize},
	}
}

func protocols(h2 bool) *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &p
}

func (p *guestProxy) close() {
	p.h1.CloseIdleConnections()
	p.h2.CloseIdleConnections()
}

// speaking returns what carries r to a guest. The agent is spoken to as the
// caller spoke to us: HTTP/2 has what HTTP/1.1 has not, trailers that gRPC
// needs and answers before the request has ended; HTTP/1.1 can be upgraded,
// and is a little faster. Of other servers only those of gRPC are sure to know
// HTTP/2 without TLS.
func (p *guestProxy) speaking(r *http.Request, to hop) (http.RoundTripper, *bufferPool) {
	h2 := r.ProtoMajor == 2
	switch {
	case to.port != sandbox.GuestPort && h2 && isGRPC(r.Header):
		return p.port2, &p.portPool
	case to.port != sandbox.GuestPort:
		return p.port1, &p.portPool
	case h2:
		return p.h2, &p.pool
	default:
		return p.h1, &p.pool
	}
}

func isGRPC(h http.Header) bool {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	t, rest, _ := strings.Cut(t, "+")
	return t == "application/grpc" && (rest == "" || rest == "proto" || rest == "json")
}

// hop is one way into a guest.
type hop struct {
	port   int
	notice string // for the caller
	fail   failer
	host   string              // what the server inside reads as Host; "": what the caller sent
	secret func(v string) bool // whether a key or a token of ours is v; nil: any may be
	// browser: it came by ServeBrowser.
	browser bool
	pages   bool // pages of browsers may read what the agent answers
	signed  bool // a signature let it in, of a path and a user

	addr   string // of guestAddr
	starts int
}

// guestAddr names a port of one life of a sandbox as a URL's host.
func guestAddr(sb *sandbox.Sandbox, port int) string {
	return fmt.Sprintf("%s.%d:%d", sb.ID, sb.Starts, port)
}

func splitGuestAddr(addr string) (id string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("read guest address: %w", err)
	}
	id, _, _ = strings.Cut(host, ".")
	if port, err = strconv.Atoi(p); err != nil {
		return "", 0, fmt.Errorf("read guest address: %w", err)
	}
	return id, port, nil
}

// forward carries one request to a guest and its answer back, both as they
// come, byte for byte.
func (in *Ingress) forward(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, to hop) {
	// A connection of the pool could still lead to an instance that is on its way out.
	if sb.State != sandbox.StateRunning {
		to.fail(w, notRunning(sb))
		return
	}
	to.addr, to.starts = guestAddr(sb, to.port), sb.Starts
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs it not
	}
	left := watchBody(r)
	transport, pool := in.proxy.speaking(r, to)
	rp := httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		BufferPool:    pool,
		ErrorLog:      slog.NewLogLogger(in.log.Handler(), slog.LevelDebug),
		Rewrite:       func(pr *httputil.ProxyRequest) { rewrite(pr, to) },
		ModifyResponse: func(resp *http.Response) error {
			if err := narrow(resp); err != nil {
				return err
			}
			in.clean(resp.Header)
			if to.browser {
				cleanForBrowser(resp.Header)
			}
			sign(resp.Header, r.Header, to)
			cleanTrailer(resp, to.port)
			endAfter(resp, left)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				in.log.Debug("reach guest", "guest", to.addr, "error", err)
			}
			to.fail(w, unreachable(err, to.port))
		},
	}
	rp.ServeHTTP(quiet{w, in.clean}, r.WithContext(boundInterim(r.Context())))
}

func rewrite(pr *httputil.ProxyRequest, to hop) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host = "http", to.addr
	dropSecretHeaders(out.Header)
	if to.port == sandbox.GuestPort {
		rewriteAgent(pr)
		if to.signed && !weak.On(weak.ServerUserUnsigned) {
			out.Header.Del("Authorization") // which names a user where the link, which is signed, names none
		}
		return
	}
	dropSecrets(out, to.secret)
	// In clear, by HTTP/2, a connection would go on past everything here.
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") {
		dropUpgrade(out.Header)
	}
	if len(pr.In.Trailer) > 0 {
		out.Trailer = pr.In.Trailer // filled in when the body has ended
	}
	if host, _, err := net.SplitHostPort(pr.In.RemoteAddr); err == nil {
		out.Header.Set("X-Forwarded-For", host)
	}
	if pr.In.TLS != nil {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	if to.host != "" {
		out.Header.Set("X-Forwarded-Host", pr.In.Host)
		out.Host = to.host
	}
}

// rewriteAgent keeps from the guest agent what it has no use for.
func rewriteAgent(pr *httputil.ProxyRequest) {
	out := pr.Out
	out.Host = "guest"
	dropUpgrade(out.Header)
	out.Header.Del(auth.HeaderKey)
	out.Header.Del(auth.HeaderAdmin)
	out.Header.Del("Cookie")
	out.Header.Del("Origin")
	if scheme := strings.Fields(out.Header.Get("Authorization")); len(scheme) > 0 && strings.EqualFold(scheme[0], "Bearer") {
		out.Header.Del("Authorization")
	}
	if strings.Contains(out.URL.RawQuery, "signature") {
		q := out.URL.Query()
		q.Del("signature")
		q.Del("signature_expiration")
		out.URL.RawQuery = q.Encode()
	}
}

func dropUpgrade(h http.Header) {
	h.Del("Connection")
	h.Del("Upgrade")
	h.Del("Http2-Settings")
}

// narrow refuses an answer that is more than the request asked for, and has a
// connection that was upgraded wait with small buffers.
func narrow(resp *http.Response) error {
	if resp.StatusCode < 100 || resp.StatusCode > 999 { // net/http panics where it is to write one
		return fmt.Errorf("status %d is none of HTTP", resp.StatusCode)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil
	}
	if resp.Request.Header.Get("Upgrade") == "" {
		return errors.New("another protocol was switched to unasked")
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &tunnel{conn}
	}
	return nil
}

// ownHeaders begin what only the daemon may say.
const ownHeaders = "Carboy-"

// clean takes out of a guest's answer, of any status, what only the daemon may
// say, and what would reach other sandboxes' names.
func (in *Ingress) clean(h http.Header) {
	hostOnlyCookies(h, in.o.Domain)
	for name := range h {
		if strings.HasPrefix(name, ownHeaders) {
			h.Del(name)
		}
	}
}

// cleanTrailer does the same for what comes after the answer, in which there
// are no cookies at all. What the guest agent says of an archive is there.
func cleanTrailer(resp *http.Response, port int) {
	if resp.StatusCode == http.StatusSwitchingProtocols || weak.On(weak.ServerAnswersRaw) {
		return
	}
	drop := func() {
		for name := range resp.Trailer {
			archive := port == sandbox.GuestPort && (name == "Carboy-Skipped" || name == "Carboy-Skipped-Count")
			if strings.HasPrefix(name, ownHeaders) && !archive || strings.HasPrefix(name, "Set-Cookie") {
				delete(resp.Trailer, name)
			}
		}
	}
	drop() // of what is announced
	resp.Body = &trailed{resp.Body, drop}
}

// trailed is a body that calls end before anybody looks at its trailer.
type trailed struct {
	io.ReadCloser
	end func()
}

func (t *trailed) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil {
		t.end()
	}
	return n, err
}

func (t *trailed) Close() error {
	err := t.ReadCloser.Close()
	t.end()
	return err
}

// sign says what only the daemon may.
func sign(h, asked http.Header, to hop) {
	h.Set(api.HeaderStarts, strconv.Itoa(to.starts))
	if to.pages {
		letPagesRead(h, asked)
	}
	if to.notice != "" {
		h.Set(api.HeaderNotice, oneLine(to.notice))
	}
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// unreachable makes an error of the domain out of a transport's.
func unreachable(err error, port int) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	e := sandbox.Errorf(sandbox.Unavailable, "the guest did not answer").WithHint("try again")
	if port != sandbox.GuestPort {
		e = sandbox.Errorf(sandbox.Unavailable, "port %d: what listens there gave no answer of HTTP", port)
	}
	e.Err = err
	return e
}

// bufferPool keeps buffers for copying, of one size.
type bufferPool struct {
	size int
	p    sync.Pool
}

func (b *bufferPool) Get() []byte {
	if v, ok := b.p.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, b.size)
}

func (b *bufferPool) Put(v []byte) { b.p.Put(&v) }
