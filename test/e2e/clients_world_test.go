package e2e

import (
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/vishvananda/netlink"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// Which hosts registries have is for the presets to say.
var (
	pypiIndex, pypiFiles = presetHost("pypi", 0), presetHost("pypi", 1)
	npmRegistry          = presetHost("npm", 0)
	goProxy, goSums      = presetHost("go", 0), presetHost("go", 1)
	debianArchive        = presetHost("debian", 0)
)

// presetHost is the host that a preset's rule is about.
func presetHost(preset string, rule int) string {
	presets := policy.Presets()
	i := slices.IndexFunc(presets, func(p policy.Preset) bool { return p.Name == preset })
	return presets[i].Rules[rule].Hosts[0]
}

// sites serves names at one address, each under a certificate of its own, on
// port 443 and in clear on 80. Unlike https it leaves bodies to the handlers,
// which may stream.
func (w *world) sites(address string, handlers map[string]http.Handler) {
	w.t.Helper()
	certs := map[string]*tls.Certificate{}
	for name := range handlers {
		c := w.certificate(nil, name)
		certs[name] = &c
	}
	w.sitesWith(address, handlers, certs)
}

// sitesWith serves them under those certificates.
func (w *world) sitesWith(address string, handlers map[string]http.Handler, certs map[string]*tls.Certificate) {
	w.t.Helper()
	for name := range handlers {
		w.resolve(name, address)
	}
	byName := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(r.Host, ":443") // which gRPC says, and others do not
		h, ok := handlers[name]
		if !ok {
			http.Error(rw, "no such site", http.StatusMisdirectedRequest)
			return
		}
		w.mu.Lock()
		w.requests = append(w.requests, &received{
			Server: name, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host,
			Header: r.Header.Clone(), Proto: r.Proto,
		})
		w.mu.Unlock()
		h.ServeHTTP(rw, r)
	})
	clear := &http.Server{Handler: byName}
	encrypted := &http.Server{Handler: byName, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), TLSConfig: &tls.Config{
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := certs[hello.ServerName]; c != nil {
				return c, nil
			}
			return nil, fmt.Errorf("no certificate for %q", hello.ServerName)
		},
	}}
	l80, l443 := w.listen(net.JoinHostPort(address, "80")), w.listen(net.JoinHostPort(address, "443"))
	go clear.Serve(l80)                 // it ends with the test
	go encrypted.ServeTLS(l443, "", "") // likewise
	w.t.Cleanup(func() { clear.Close(); encrypted.Close() })
}

// routeIPv6 gives the world's machines a way to public addresses of IPv6:
// without one, guests are not told of them.
func (w *world) routeIPv6() {
	w.t.Helper()
	var err error
	w.in(func() {
		var lo netlink.Link
		if lo, err = netlink.LinkByName("lo"); err != nil {
			return
		}
		_, public, _ := net.ParseCIDR("2000::/3")
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: public})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// came reports whether a request arrived: "SITE METHOD PATH", where a path that
// ends in * stands for all below, and a fourth word is a field that it has.
func (w *world) came(request string) bool {
	want := append(strings.Fields(request), "")
	prefix, below := strings.CutSuffix(want[2], "*")
	return slices.ContainsFunc(w.received(want[0]), func(r *received) bool {
		return r.Method == want[1] && (r.Path == prefix || below && strings.HasPrefix(r.Path, prefix)) &&
			(want[3] == "" || r.Header.Get(want[3]) != "")
	})
}

// forget has the servers start anew with what they received.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = nil
}

// webText is what a site has to say, and long enough to be cut and packed.
var webText = strings.Repeat("trusted and whole\n", 1000)

// webSite is a site with what the usual clients meet: redirects, packed and
// partial answers, uploads, streams of events and WebSockets.
func webSite() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "trusted over %s\n", r.Proto)
	})
	mux.Handle("/redirect", http.RedirectHandler("/", http.StatusFound))
	mux.HandleFunc("/text", func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, "text.txt", time.Time{}, strings.NewReader(webText))
	})
	mux.HandleFunc("/gzip", func(rw http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			http.Error(rw, "this comes packed", http.StatusNotAcceptable)
			return
		}
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(rw)
		_, _ = io.WriteString(z, webText)
		_ = z.Close()
	})
	mux.HandleFunc("/upload", func(rw http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		fmt.Fprintf(rw, "%d %x\n", n, sum.Sum(nil))
	})
	mux.HandleFunc("/ws", func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow() // it may be closed already
		if c.Write(r.Context(), websocket.MessageText, []byte("greetings")) != nil || r.URL.Query().Has("once") {
			return
		}
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, data) != nil {
				return
			}
		}
	})
	events(mux, "/events", "/next")
	return mux
}

// events serves a stream whose next event comes when the client has answered
// the former one at another path: a stream that is kept back anywhere stops.
func events(mux *http.ServeMux, stream, next string) {
	answered := make(chan struct{})
	mux.HandleFunc(stream, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(rw, "data: event %d\n\n", i)
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-answered:
			case <-r.Context().Done():
				return
			case <-time.After(patience.For(10 * time.Second)): // a stream that was kept back
				return
			}
		}
		fmt.Fprint(rw, "data: the end\n\n")
	})
	mux.HandleFunc(next, func(rw http.ResponseWriter, r *http.Request) {
		select {
		case answered <- struct{}{}:
		case <-r.Context().Done():
		}
	})
}

// modelSite is an API of language models, as far as one call of it goes. It
// wants the key.
func modelSite(key string) http.Handler {
	mux := http.NewServeMux()
	events(mux, "POST /v1/messages", "GET /v1/models/next")
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != key {
			http.Error(rw, "no key", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(rw, r)
	})
}

// socketSite is an API of language models over a WebSocket. It wants the key.
func socketSite(key string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/responses" || r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(rw, "no key", http.StatusUnauthorized)
			return
		}
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow() // it may be closed already
		for {
			var event struct{ Type string }
			if wsjson.Read(r.Context(), c, &event) != nil ||
				wsjson.Write(r.Context(), c, map[string]string{"type": "response.completed for " + event.Type}) != nil {
				return
			}
		}
	})
}

// clientPrograms puts the programs of testdata/clients into a directory of the
// home's, and builds those that have to be built.
func (h *home) clientPrograms() string {
	h.t.Helper()
	dir := filepath.Join(h.dir, "clients")
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	builds := [][]string{{"go", "build", "-o", dir + "/go-client", "./testdata/clients/grpc"}}
	if _, err := exec.LookPath("javac"); err == nil {
		builds = append(builds, []string{"javac", "--release", "11", "-d", dir, dir + "/Fetch.java"})
	}
	for _, b := range builds {
		cmd := exec.Command(b[0], b[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Fatalf("%q: %v\n%s", b, err, out)
		}
	}
	if err := os.WriteFile(dir+"/upload", noise(4<<20), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return dir
}

// needs skips a test whose program this machine, and so its sandboxes, lacks.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("this machine has no %s", p)
		}
	}
}
