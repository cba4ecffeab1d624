package server

import (
	"context"
	"errors"
	"fmt"
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
)

const (
	guestIdle       = 90 * time.Second
	guestIdleConns  = 256 // of all guests
	guestIdlePer    = 16  // of one port of one sandbox
	guestMaxHeader  = 64 << 10
	guestBufferSize = 32 << 10
)

// guestProxy carries requests to guests. Its connections are pooled by
// sandbox, port, and how often the sandbox was started, so that none leads to
// a box that is gone; what a guest closes, or leaves unused, leaves the pool.
type guestProxy struct {
	h1, h2 *http.Transport
	log    *slog.Logger
	pool   bufferPool
}

func newGuestProxy(m guests, log *slog.Logger) *guestProxy {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		id, port, err := splitGuestAddr(addr)
		if err != nil {
			return nil, err
		}
		return m.Dial(ctx, anyone, id, port)
	}
	transport := func(h2 bool) *http.Transport {
		var p http.Protocols
		p.SetHTTP1(!h2)
		p.SetUnencryptedHTTP2(h2)
		return &http.Transport{
			DialContext:            dial,
			Protocols:              &p,
			DisableCompression:     true,
			MaxIdleConns:           guestIdleConns,
			MaxIdleConnsPerHost:    guestIdlePer,
			IdleConnTimeout:        guestIdle,
			MaxResponseHeaderBytes: guestMaxHeader,
			WriteBufferSize:        guestBufferSize,
			ReadBufferSize:         guestBufferSize,
		}
	}
	return &guestProxy{h1: transport(false), h2: transport(true), log: log}
}

func (p *guestProxy) close() {
	p.h1.CloseIdleConnections()
	p.h2.CloseIdleConnections()
}

// RoundTrip speaks to the guest as the caller spoke to us: HTTP/2 has what
// HTTP/1.1 has not, trailers that gRPC needs and answers before the request
// has ended; HTTP/1.1 can be upgraded, and is a little faster.
func (p *guestProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ProtoMajor == 2 {
		return p.h2.RoundTrip(r)
	}
	return p.h1.RoundTrip(r)
}

// hop is one way into a guest.
type hop struct {
	port   int
	notice string // for the caller
	fail   failer

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

// secretHeaders are for the daemon alone. What runs in a sandbox must not
// learn how to speak to it.
var secretHeaders = []string{"X-Api-Key", headerToken, headerSandbox, headerPort, "E2b-Traffic-Access-Token"}

// forward carries one request to a guest and its answer back, both as they
// come, byte for byte.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, to hop) {
	// A connection of the pool could still lead to a box that is on its way out.
	if sb.State != sandbox.StateRunning {
		to.fail(w, notRunning(sb))
		return
	}
	to.addr, to.starts = guestAddr(sb, to.port), sb.Starts
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs it not
	}
	rp := httputil.ReverseProxy{
		Transport:     s.proxy,
		FlushInterval: -1,
		BufferPool:    &s.proxy.pool,
		ErrorLog:      slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Rewrite:       func(pr *httputil.ProxyRequest) { rewrite(pr, to) },
		ModifyResponse: func(resp *http.Response) error {
			sign(resp.Header, to)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				s.log.Debug("reach guest", "guest", to.addr, "error", err)
			}
			to.fail(w, unreachable(err))
		},
	}
	rp.ServeHTTP(w, r)
}

func rewrite(pr *httputil.ProxyRequest, to hop) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host = "http", to.addr
	for _, name := range secretHeaders {
		out.Header.Del(name)
	}
	if scheme, _, _ := strings.Cut(out.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		out.Header.Del("Authorization")
	}
	if to.port != sandbox.GuestPort {
		return // Host stays: it is how a server inside is called
	}
	out.Host = "guest"
	out.Header.Del("Cookie")
	if strings.Contains(out.URL.RawQuery, "signature") {
		q := out.URL.Query()
		q.Del("signature")
		q.Del("signature_expiration")
		out.URL.RawQuery = q.Encode()
	}
}

// sign takes out of a guest's answer what only the daemon may say, and says
// it.
func sign(h http.Header, to hop) {
	for name := range h {
		if strings.HasPrefix(name, "Carboy-") {
			h.Del(name)
		}
	}
	h.Set(api.HeaderStarts, strconv.Itoa(to.starts))
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
func unreachable(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	e := sandbox.Errorf(sandbox.Unavailable, "the guest did not answer").WithHint("try again")
	e.Err = err
	return e
}

// bufferPool keeps buffers for copying, of one size.
type bufferPool struct{ p sync.Pool }

func (b *bufferPool) Get() []byte {
	if v, ok := b.p.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, guestBufferSize)
}

func (b *bufferPool) Put(v []byte) { b.p.Put(&v) }
