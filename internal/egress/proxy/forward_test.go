package proxy_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/long"
)

// allow is a policy that lets every request to some hosts through.
func allow(hosts ...string) policy.Policy {
	return policy.Policy{Rules: []policy.Rule{{ID: "r", Hosts: hosts}}}
}

// echo answers with what it received.
type echo struct {
	Proto   string
	Method  string
	Host    string
	URI     string
	Header  http.Header
	Trailer http.Header
	Length  int64
	Body    string
	TE      []string
}

func echoServer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(echo{
		Proto: r.Proto, Method: r.Method, Host: r.Host, URI: r.RequestURI, Header: r.Header,
		Trailer: r.Trailer, Length: r.ContentLength, Body: string(body), TE: r.TransferEncoding,
	})
}

// versions runs a test over both versions of HTTP, in TLS and clear.
func versions(t *testing.T, f func(t *testing.T, http2 bool, scheme string)) {
	for _, http2 := range []bool{false, true} {
		for _, scheme := range []string{"https", "http"} {
			t.Run(fmt.Sprintf("%s-%v", scheme, map[bool]string{false: "1", true: "2"}[http2]), func(t *testing.T) {
				f(t, http2, scheme)
			})
		}
	}
}

func TestForward(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://a.example/x%2Fy/../z?q=1&q=%20", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Own", "1")
		req.Header["User-Agent"] = []string{""}
		resp, err := w.client(http2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got echo
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		want := echo{
			Proto: "HTTP/1.1", Method: "POST", Host: "a.example", URI: "/x%2Fy/../z?q=1&q=%20",
			Header: http.Header{"X-Own": {"1"}, "Content-Length": {"5"}}, Length: 5, Body: "hello",
		}
		if http2 {
			want.Proto = "HTTP/2.0"
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("the upstream received (-want +got):\n%s", d)
		}
		if v := resp.Header["Via"]; v != nil || resp.ProtoMajor == 2 != http2 {
			t.Errorf("the answer came over %s via %v", resp.Proto, v)
		}
		r := w.recorded(func(r netlog.Record) bool { return r.Method == "POST" })
		if r.Verdict != netlog.Allow || r.Status != 200 || r.Sent != 5 || r.Received == 0 || r.Host != "a.example" ||
			r.Path != "/x%2Fy/../z" || r.Protocol != scheme || r.Rule != "r" || !strings.HasPrefix(r.Address, "45.0.0.1:") {
			t.Errorf("recorded %+v", r)
		}
	})
}

func TestHeadAndBodyless(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				rw.WriteHeader(http.StatusNoContent)
			case "/304":
				rw.Header().Set("Etag", `"1"`)
				rw.WriteHeader(http.StatusNotModified)
			case "/head":
				rw.Header().Set("Content-Length", "12345")
				rw.Header()["Content-Type"] = nil
			case "/untyped":
				rw.Header()["Content-Type"] = nil
				_, _ = io.WriteString(rw, "<html>")
			}
		}))
		c := w.client(http2)
		for _, tt := range []struct {
			method, path string
			status       int
			length       int64
		}{
			{"GET", "/204", 204, 0}, {"GET", "/304", 304, 0}, {"HEAD", "/head", 200, 12345}, {"GET", "/untyped", 200, 6},
		} {
			req, _ := http.NewRequestWithContext(t.Context(), tt.method, scheme+"://a.example"+tt.path, nil)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.status || tt.length != 0 && resp.ContentLength != tt.length {
				t.Errorf("%s %s: %d with %d bytes, want %d with %d", tt.method, tt.path, resp.StatusCode, resp.ContentLength, tt.status, tt.length)
			}
			if ct := resp.Header.Get("Content-Type"); ct != "" {
				t.Errorf("%s %s: a content type was made up: %s", tt.method, tt.path, ct)
			}
		}
	})
}

func TestAnswerHeaders(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		h := rw.Header()
		h.Set("Alt-Svc", `h3=":443"`)
		h.Set("Strict-Transport-Security", "max-age=1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Content-Encoding", "gzip")
		h.Set("Location", "https://evil.example/")
		rw.WriteHeader(http.StatusFound)
	}))
	c := w.client(false)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.Get("https://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "https://evil.example/" {
		t.Errorf("a redirect came as %d %v", resp.StatusCode, resp.Header)
	}
	for name, want := range map[string]string{"Alt-Svc": "", "Keep-Alive": "", "Strict-Transport-Security": "max-age=1", "Content-Encoding": "gzip"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestTrailers(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Trailer", "X-Announced")
			_, _ = io.Copy(rw, r.Body)
			rw.Header().Set("X-Announced", r.Trailer.Get("X-Sum"))
			rw.Header().Set(http.TrailerPrefix+"X-Late", "2")
		}))
		pr, pw := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://a.example/", pr)
		req.Trailer = http.Header{"X-Sum": nil}
		go func() {
			_, _ = io.WriteString(pw, "body")
			req.Trailer.Set("X-Sum", "42")
			pw.Close()
		}()
		resp, err := w.client(http2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "body" {
			t.Errorf("body %q, %v", body, err)
		}
		if got := resp.Trailer; got.Get("X-Announced") != "42" || got.Get("X-Late") != "2" {
			t.Errorf("trailer %v", got)
		}
	})
}

// TestUnannouncedTrailer sends a trailer field that the head did not name.
func TestUnannouncedTrailer(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
	_, body := speak(t, w.dial("45.0.0.1:80"), "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 7\r\n\r\n")
	if !strings.Contains(body, `"X-Sum":["7"]`) {
		t.Errorf("the upstream received %s", body)
	}
}

func TestInformational(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Link", "</style.css>")
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Del("Link")
			echoServer(rw, r)
		}))
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = append(hints, fmt.Sprint(code, h.Get("Link")))
				return nil
			},
		})
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://a.example/", nil)
		resp, err := w.client(http2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if len(hints) != 1 || hints[0] != "103</style.css>" || resp.Header.Get("Link") != "" {
			t.Errorf("hints %q, and a final Link %q", hints, resp.Header.Get("Link"))
		}
	})
}

// TestContinue asks before it sends: the upstream's word reaches the guest,
// whichever it is.
func TestContinue(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	var read bool
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		read = string(body) == "hello"
	}))
	c := w.dial("45.0.0.1:80")
	resp, _ := speak(t, c, "POST /yes HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if resp.StatusCode != http.StatusContinue {
		t.Fatalf("answered %d before the body, want 100", resp.StatusCode)
	}
	if resp, _ := speak(t, c, "hello"); resp.StatusCode != 200 || !read {
		t.Errorf("answered %d, read %v", resp.StatusCode, read)
	}
	if resp, _ := speak(t, w.dial("45.0.0.1:80"), "POST /no HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); resp.StatusCode != http.StatusExpectationFailed {
		t.Errorf("answered %d, want 417", resp.StatusCode)
	}
}

// TestEarlyAnswer answers before the request is there: the guest sees it while
// it still sends.
func TestEarlyAnswer(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			rw.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(rw).Flush()
			copyFlushed(rw, r.Body)
		}))
		pr, pw := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://a.example/", pr)
		resp, err := w.client(http2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("answered %d", resp.StatusCode)
		}
		buf := make([]byte, 4)
		for range 3 { // both ways at once
			if _, err := io.WriteString(pw, "ping"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "ping" {
				t.Fatalf("read %q, %v", buf, err)
			}
		}
		pw.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("after the end %q, %v", rest, err)
		}
	})
}

// copyFlushed copies, and flushes after each piece.
func copyFlushed(rw http.ResponseWriter, r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		_, _ = rw.Write(buf[:n])
		_ = http.NewResponseController(rw).Flush()
		if err != nil {
			return
		}
	}
}

func TestLargeBothWays(t *testing.T) {
	size := long.Rounds(8<<20, 32<<20) // more than any window
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			_, _ = io.Copy(rw, r.Body)
		}))
		data := make([]byte, size)
		_, _ = rand.Read(data)
		resp, err := w.client(http2).Post(scheme+"://a.example/", "application/octet-stream", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back of %d, %v", len(got), size, err)
		}
	})
}
