package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// offered is a world in which programs outside may serve.
type offered struct {
	*world
	desk *offer.Desk
	path string
}

func newOffered(t testing.TB, services ...string) *offered {
	t.Helper()
	o := &offered{desk: offer.NewDesk(), path: filepath.Join(t.TempDir(), "s")}
	o.desk.Set(services)
	o.world = newWorld(t, policy.Policy{Services: services}, worldOptions{
		secrets: map[string]string{"TOKEN": "value-of-the-token"},
		change:  func(p *proxy.Options) { p.Services, p.Sandbox = o.desk, "id_of_this_one" },
	})
	l, err := net.Listen("unix", o.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = o.desk.Serve(ctx, l) }()
	return o
}

// offer has a handler serve a name until stop is called.
func (o *offered) offer(name string, h http.HandlerFunc) (stop func()) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = offer.Serve(ctx, offer.Options{Handler: h, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", o.path)
			if err == nil {
				err = offer.Greet(ctx, c, name)
			}
			return c, err
		}})
	}()
	stop = func() { cancel(); <-done }
	o.t.Cleanup(stop)
	for !slices.Contains(o.desk.Standing(), name) {
		if o.t.Context().Err() != nil {
			o.t.FailNow()
		}
		wait()
	}
	return stop
}

// info is a connection to the gate's own pages.
func (o *offered) info() net.Conn {
	guest, gate := pair(o.t)
	go o.proxy.ServeInfo(context.WithoutCancel(o.t.Context()), gate)
	return guest
}

// ask sends a request of HTTP/1.1 to the gate.
func (o *offered) ask(line string, fields ...string) (*http.Response, string) {
	o.t.Helper()
	return speak(o.t, o.info(), line+" HTTP/1.1\r\nHost: gate.carboy.internal\r\n"+headOf(fields))
}

// headOf is the rest of a request: its fields, and what follows them where the last one
// brings that.
func headOf(fields []string) string {
	text := strings.Join(fields, "\r\n")
	if strings.Contains(text, "\r\n\r\n") {
		return text
	}
	return strings.TrimPrefix(text+"\r\n\r\n", "\r\n")
}

// tells answers with what it was sent.
func tells(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s host=%s body=%s", r.Method, r.RequestURI, r.Host, body)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range r.Header {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "\n%s: %q", name, r.Header[name])
	}
	if len(r.Trailer) > 0 {
		fmt.Fprintf(w, "\ntrailer: %q", r.Trailer)
	}
}

// The first segment is the service, as it is written; what is below is passed on
// as it is written.
func TestServicePaths(t *testing.T) {
	o := newOffered(t, "x", "y")
	o.offer("x", tells)
	for path, want := range map[string]string{
		"/x/": "GET / ", "/x": "GET / ", "/x?q=1": "GET /?q=1 ", "/x/a/b?q=%2f;&z": "GET /a/b?q=%2f;&z ", "/x//a": "GET //a ",
		"/x/../y/a": "GET /../y/a ", "/x/%2e%2e/y": "GET /%2e%2e/y ", "/x/a%2Fb": "GET /a%2Fb ", "/x/.": "GET /. ",
		"http://gate.carboy.internal/x/a": "GET /a ", "http://gate.carboy.internal:80/x": "GET / ",
	} {
		if resp, body := o.ask("GET " + path); resp.StatusCode != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, body, want)
		}
	}
	for path, want := range map[string]string{
		"/y/a": offer.CodeAway, "/z/a": proxy.CodeNoService, "//x/a": proxy.CodeNotHere, "/%78/a": proxy.CodeNotHere, "/X/a": proxy.CodeNotHere,
		"/../x/a": proxy.CodeNotHere, "/./x/a": proxy.CodeNotHere, "/x%2Fa": proxy.CodeNotHere, "/x;a": proxy.CodeNotHere, "/x.": proxy.CodeNotHere,
		"/-x": proxy.CodeNotHere, "/nothing-of-that-name-has-so-many-bytes/": proxy.CodeNotHere, "/carboy/": proxy.CodeNotHere,
	} {
		resp, body := o.ask("GET " + path)
		var said struct{ Code string }
		if err := json.Unmarshal([]byte(body), &said); err != nil || said.Code != want || resp.Header.Get("X-Carboy-Refused") != want {
			t.Errorf("%s: %d %s, want %s", path, resp.StatusCode, body, want)
		}
	}
	if _, body := o.ask("GET /healthz"); body != "ok\n" {
		t.Errorf("the gate's own page is %q", body)
	}
	if _, body := o.ask("GET /"); !strings.Contains(body, `{"name":"x","url":"http://gate.carboy.internal/x/","up":true},{"name":"y","url":"http://gate.carboy.internal/y/","up":false}`) {
		t.Errorf("the gate says %s", body)
	}
}

// A service that is away is told in one form, whether nobody offers it, or what is offered leads
// to a program that does not answer, or has gone under way.
func TestServiceAway(t *testing.T) {
	o := newOffered(t, "nobody", "dead", "gone")
	target, err := offer.ParseTarget("unix:" + filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	o.offer("dead", offer.To(target).ServeHTTP)
	o.offer("gone", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, message := range map[string]string{
		"nobody": "no program serves it at the moment",
		"dead":   "the program that serves it did not answer",
		"gone":   "the program that serves it went away before it answered; it may have begun",
	} {
		resp, body := o.ask("GET /" + name + "/")
		want, err := json.Marshal(api.GateRefusal{Code: offer.CodeAway, Message: name + ": " + message, Host: policy.GateHost, Hint: "try again in 1 s"})
		if err != nil {
			t.Fatal(err)
		}
		if body != string(want)+"\n" || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("X-Carboy-Refused") != offer.CodeAway {
			t.Errorf("%s: %d %v %s, want %s", name, resp.StatusCode, resp.Header, body, want)
		}
	}
}

// Who calls is what the gate says, whatever the guest does, and however it spells it.
func TestServiceCaller(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", tells)
	_, body := o.ask("POST /x/", "Carboy-Sandbox: forged", "carboy_sandbox: forged", "Carboy.Sandbox: forged", "X-Carboy-Owner: forged", "X-Forwarded-For: forged",
		"X-Forwarded-Prefix: /forged", "Forwarded: for=forged", "X_Real_IP: forged", "Connection: close, X-Forwarded-Host",
		"Proxy-Authorization: forged", "Keep-Alive: forged", "Authorization: "+placeholder("TOKEN"), "X-Mine: kept", "Content-Length: 0")
	for _, want := range []string{
		`Carboy-Sandbox: ["id_of_this_one"]`, `X-Forwarded-Host: ["gate.carboy.internal"]`, `X-Forwarded-Proto: ["http"]`, `X-Forwarded-Prefix: ["/x"]`,
		`X-Mine: ["kept"]`, "host=gate.carboy.internal", `Authorization: ["` + placeholder("TOKEN") + `"]`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in\n%s", want, body)
		}
	}
	if strings.Contains(body, "forged") {
		t.Errorf("something forged got through:\n%s", body)
	}
	if _, body := o.ask("GET /x/", "Connection: Carboy-Sandbox", "Carboy-Sandbox: forged"); !strings.Contains(body, `Carboy-Sandbox: ["id_of_this_one"]`) {
		t.Errorf("who calls can be taken out: %s", body)
	}
	if resp, body := o.ask("POST /x/", "Transfer-Encoding: chunked\r\n\r\n0\r\nCarboy-Sandbox: forged\r\n\r\n"); strings.Contains(body, "forged") {
		t.Errorf("a trailer got through: %d %s", resp.StatusCode, body)
	}
}

// What some servers take for another path or method than the request's does not reach a
// service, however it is spelled; nor does what says who calls for who stands before it.
func TestServiceStandsForNoOther(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", tells)
	for _, name := range []string{
		"X-Original-URL", "X_Original_Url", "X-Rewrite-URL", "X-Original-Uri", "X-Override-Url", "Request-Uri", "Path-Info",
		"X-HTTP-Method-Override", "x.http.method.override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method",
	} {
		resp, body := o.ask("GET /x/a", name+": /other")
		var said api.GateRefusal
		if err := json.Unmarshal([]byte(body), &said); err != nil || resp.StatusCode != 400 || said.Code != proxy.CodeBadRequest || !strings.Contains(said.Message, "its field ") || !strings.HasPrefix(said.Host, policy.GateHost) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	fields := []string{"X-Mine: kept"}
	for name := range strings.FieldsSeq("X-Forwarded-Prefix X-Forwarded-Path X-Forwarded-Uri X-Forwarded-Url X_Forwarded_Uri X-Forwarded-Method X-Forwarded-User " +
		"X-Original-Host X-Host True-Client-IP X-Remote-User Remote_User") {
		fields = append(fields, name+": forged")
	}
	if resp, body := o.ask("GET /x/a", fields...); resp.StatusCode != 200 || strings.Contains(body, "forged") || !strings.Contains(body, `X-Mine: ["kept"]`) || !strings.Contains(body, `X-Forwarded-Prefix: ["/x"]`) {
		t.Errorf("what the gate alone may say: %d %s", resp.StatusCode, body)
	}
}

// No secret goes to a service, and what is sent to it is nobody else's business:
// placeholders are no secrets.
func TestServiceGetsNoSecret(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", tells)
	text := "key " + placeholder("TOKEN")
	_, body := o.ask("POST /x/", "X-Api-Key: "+placeholder("TOKEN"), fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text))
	if !strings.Contains(body, "body="+text) || !strings.Contains(body, `X-Api-Key: ["`+placeholder("TOKEN")) || strings.Contains(body, "value-of-the-token") {
		t.Errorf("the service got %s", body)
	}
}

// The same services are there in TLS, over HTTP/2 and by the proxy.
func TestServiceWays(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", tells)
	explicit := func() net.Conn {
		guest, gate := pair(t)
		go o.proxy.ServeProxy(context.WithoutCancel(t.Context()), gate)
		return guest
	}
	tunnel := func(port string) net.Conn {
		c := explicit()
		r := bufio.NewReader(c)
		_, _ = io.WriteString(c, "CONNECT gate.carboy.internal:"+port+" HTTP/1.1\r\nHost: gate.carboy.internal:"+port+"\r\n\r\n")
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("CONNECT to port %s: %v, %v", port, resp, err)
		}
		return c
	}
	wayOf := func(dial func() net.Conn, h2 bool) *http.Client {
		tr := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: o.trusted}, Protocols: new(http.Protocols),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
		}
		tr.Protocols.SetHTTP1(!h2)
		tr.Protocols.SetHTTP2(h2)
		tr.Protocols.SetUnencryptedHTTP2(h2)
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, Timeout: patience.For(20 * time.Second)}
	}
	for name, one := range map[string]struct {
		c      *http.Client
		scheme string
	}{
		"clear": {wayOf(o.info, false), "http"}, "clear-2": {wayOf(o.info, true), "http"}, "tls": {wayOf(o.info, false), "https"}, "tls-2": {wayOf(o.info, true), "https"},
		"tunnel": {wayOf(func() net.Conn { return tunnel("80") }, false), "http"}, "tunnel-tls": {wayOf(func() net.Conn { return tunnel("443") }, true), "https"},
	} {
		resp, err := one.c.Post(one.scheme+"://gate.carboy.internal/x/a%2Fb", "text/plain", strings.NewReader("sent"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.HasPrefix(string(body), "POST /a%2Fb host=gate.carboy.internal body=sent") || !strings.Contains(string(body), `X-Forwarded-Proto: ["`+one.scheme) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	resp, body := speak(t, explicit(), "GET http://gate.carboy.internal/x/p HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n")
	if resp.StatusCode != 200 || !strings.HasPrefix(body, "GET /p ") {
		t.Errorf("by the proxy: %d %s", resp.StatusCode, body)
	}
	for _, bad := range []string{"http://gate.carboy.internal:8080/x/", "https://gate.carboy.internal/x/", "ftp://gate.carboy.internal/x/"} {
		if resp, _ := speak(t, explicit(), "GET "+bad+" HTTP/1.1\r\nHost: "+strings.TrimSuffix(strings.SplitAfter(bad, "//")[1], "/x/")+"\r\n\r\n"); resp.StatusCode < 400 {
			t.Errorf("%s by the proxy: %d", bad, resp.StatusCode)
		}
	}
}

// What is for another host, or could be read in two ways, reaches no service.
func TestServiceStrict(t *testing.T) {
	o := newOffered(t, "x")
	calls := make(chan string, 16)
	o.offer("x", func(_ http.ResponseWriter, r *http.Request) { calls <- r.RequestURI })
	for _, text := range []string{
		"GET /x/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"GET http://evil.example/x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n",
		"GET /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nHost: gate.carboy.internal\r\n\r\n",
		"POST /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nContent_Length: 5\r\nContent-Length: 0\r\n\r\n",
		"GET /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\n folded: x\r\n\r\n",
		"GET https://gate.carboy.internal/x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n",
		"CONNECT gate.carboy.internal:80 HTTP/1.1\r\nHost: gate.carboy.internal:80\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n",
		"GET /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nLarge: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
		"GET /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		if resp, body := speak(t, o.info(), text); resp.StatusCode < 400 || resp.Header.Get("X-Carboy-Refused") == "" {
			t.Errorf("%.80q: %d %s", text, resp.StatusCode, body)
		}
	}
	if len(calls) > 0 {
		t.Errorf("%q reached the service", <-calls)
	}
}

// A program that ends and comes back is called again; meanwhile a call is told
// to come again.
func TestServiceComesBack(t *testing.T) {
	o := newOffered(t, "x")
	begun := make(chan struct{})
	stop := o.offer("x", func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	under := make(chan *http.Response, 1)
	go func() { resp, _ := o.ask("GET /x/"); under <- resp }()
	<-begun
	stop()
	for name, resp := range map[string]*http.Response{"under way": <-under, "after": func() *http.Response { r, _ := o.ask("GET /x/"); return r }()} {
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("X-Carboy-Refused") != offer.CodeAway {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
	}
	o.offer("x", tells)
	if resp, _ := o.ask("GET /x/"); resp.StatusCode != 200 {
		t.Errorf("once it is back: %d", resp.StatusCode)
	}
}

// A service that the policy has no longer is cut, under way too.
func TestServiceTakenBack(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := o.info()
	_, _ = io.WriteString(c, "GET /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(patience.For(10 * time.Second)))
	answer := bufio.NewReader(c)
	for line := ""; !strings.Contains(line, "begun"); {
		var err error
		if line, err = answer.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	o.set(policy.Policy{})
	if cut := o.proxy.Recheck(); cut != 1 {
		t.Errorf("%d were cut", cut)
	}
	if text, err := io.ReadAll(answer); isTimeout(err) || strings.HasSuffix(string(text), "0\r\n\r\n") {
		t.Errorf("it was not cut: %q, %v", text, err)
	}
	o.recorded(code(proxy.CodeCut))
	if resp, _ := o.ask("GET /x/"); resp.StatusCode != 404 {
		t.Errorf("after that: %d", resp.StatusCode)
	}
}

// Answers stream, 100-continue waits for the service, and trailers arrive.
func TestServiceStreams(t *testing.T) {
	o := newOffered(t, "x")
	next := make(chan string)
	o.offer("x", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusEarlyHints)
		for text := range next {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Sum", string(body))
	})
	c := o.info()
	_ = c.SetDeadline(time.Now().Add(patience.For(20 * time.Second)))
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST /x/ HTTP/1.1\r\nHost: gate.carboy.internal\r\nTE: trailers\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 103 Early Hints\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = r.ReadString('\n') // the empty line
	for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
		next <- event
		for line := ""; !strings.Contains(line, event[:7]); {
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatalf("waiting for %q: %v", event, err)
			}
		}
	}
	_, _ = io.WriteString(c, "tail")
	close(next)
	rest, _ := io.ReadAll(io.LimitReader(r, 64))
	if !strings.Contains(string(rest), "Sum: tail") {
		t.Errorf("the end is %q", rest)
	}
}

// Each call is one record, as a call of a service.
func TestServiceRecords(t *testing.T) {
	o := newOffered(t, "x")
	o.offer("x", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	o.ask("PUT /x/a?secret=1")
	r := o.recorded(func(r netlog.Record) bool { return r.Protocol == netlog.Service })
	if r.Verdict != netlog.Allow || r.Method != "PUT" || r.Path != "/x/a" || r.Host != "gate.carboy.internal" || r.Status != http.StatusTeapot {
		t.Errorf("%+v", r)
	}
	o.ask("GET /other/a")
	if r := o.recorded(code(proxy.CodeNoService)); r.Verdict != netlog.Deny || r.Protocol != netlog.Service || r.Status != 404 {
		t.Errorf("%+v", r)
	}
	refused, _ := netlog.Summary(o.records)
	if len(refused) != 1 || refused[0].Flag != "--allow service:other" {
		t.Errorf("what is told at the end: %+v", refused)
	}
}
