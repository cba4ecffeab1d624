package offer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// CodeAway is that of the answer where nobody serves: the gate's, and that of
// an offer whose program is not there.
const CodeAway = "service_away"

// ParseTarget reads where a program of this machine listens: an http or https URL
// without a query, or unix:PATH of a socket, absolute.
func ParseTarget(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%.200q is no URL", s)
	case u.Scheme == "unix" && path.IsAbs(u.Opaque+u.Path) && u.Host == "" && u.RawQuery == "" && u.Fragment == "":
		return &url.URL{Scheme: "unix", Path: u.Opaque + u.Path}, nil
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%.200q is neither an http or https URL nor unix:PATH", s)
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%.200q is not SCHEME://HOST[:PORT][/PATH]", u.Redacted())
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u, nil
}

// listenPatience is for how long a target may take to be connected to.
const listenPatience = 2 * time.Second

// Listens fails where nothing takes connections at target, as ParseTarget read it, and
// tells nothing of that to whoever does.
func Listens(ctx context.Context, target *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	c, err := dial(ctx, target)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err // who asks knows where
	}
	if err != nil {
		return err
	}
	return c.Close()
}

func dial(ctx context.Context, target *url.URL) (net.Conn, error) {
	var d net.Dialer
	if target.Scheme == "unix" {
		return d.DialContext(ctx, "unix", target.Path)
	}
	port := target.Port()
	if port == "" {
		port = target.Scheme // by its name
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
}

// To passes calls on to a program that listens at target, as ParseTarget read
// it. Host is the target's; whom the call was made to is in X-Forwarded-Host.
func To(target *url.URL) http.Handler {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: MaxCalls, MaxResponseHeaderBytes: maxHead}
	base := *target
	if target.Scheme == "unix" {
		base = url.URL{Scheme: "http", Host: "localhost"}
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, target) }
	}
	proxy := &httputil.ReverseProxy{
		Transport: tr, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&base)
			p.Out.URL.RawQuery = p.In.URL.RawQuery // as it was sent
			for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := p.In.Header[name]; ok {
					p.Out.Header[name] = v // the gate's own words
				}
			}
			if _, ok := p.In.Header["User-Agent"]; !ok {
				p.Out.Header["User-Agent"] = nil // none is added
			}
		},
		ErrorHandler: notThere,
	}
	if base.Path == "" {
		return proxy
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := leavesBase(r); why != "" {
			refuse(w, r, http.StatusBadRequest, "bad_request", why+": the call may lead out of what is offered", "call what is below, by its plain path")
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// notThere answers for a program that does not. Where it listens is not the
// sandbox's to know.
func notThere(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		panic(http.ErrAbortHandler) // nobody waits for an answer
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, r, http.StatusServiceUnavailable, CodeAway, "the program that serves it did not answer", "try again in 1 s")
}

// refuse answers as the gate does, for the service that the gate says was called.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message, hint string) {
	if name := strings.TrimPrefix(r.Header.Get(HeaderPrefix), "/"); name != "" {
		message = name + ": " + message
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Carboy-Refused", code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.GateRefusal{Code: code, Message: message, Host: policy.GateHost, Hint: hint}) // to who may have left
}
