package inject_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

func validJSON(b []byte) bool { return json.Valid(b) }

// coder writes a content coding.
type coder interface {
	io.WriteCloser
	Flush() error
}

// encode applies a content coding.
func encode(t testing.TB, coding, text string) string {
	t.Helper()
	return coded(t, coding, text, coder.Close)
}

// coded writes text in a content coding, and ends with what end does.
func coded(t testing.TB, coding, text string, end func(coder) error) string {
	t.Helper()
	var b bytes.Buffer
	var w coder
	var err error
	switch coding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "deflate-bare":
		w, err = flate.NewWriter(&b, 5)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	default:
		return text
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := end(w); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEncodedBodies(t *testing.T) {
	for _, coding := range []string{"gzip", "x-gzip", "deflate", "deflate-bare", "br", "zstd", "identity", "gzip, br"} {
		t.Run(coding, func(t *testing.T) {
			for _, text := range []string{strings.Repeat("harmless ", 5000), strings.Repeat("harmless ", 5000) + placeholder + " and more"} {
				body := text
				for name := range strings.SplitSeq(coding, ", ") {
					body = encode(t, name, body)
				}
				r := ask{line: "POST /", fields: "Content-Encoding: " + strings.TrimSuffix(coding, "-bare"), body: body}.request(t)
				_, why := newGuard().Request(t.Context(), r, nil)
				if strings.Contains(text, placeholder) {
					if why == nil || why.Code != inject.CodeMisplaced {
						t.Errorf("refusal = %v, want %s", why, inject.CodeMisplaced)
					}
					continue
				}
				if why != nil {
					t.Fatalf("refused: %v", why)
				}
				if got := readBody(t, r); got != body {
					t.Error("the body went on changed")
				}
			}
		})
	}
	bomb := strings.Repeat(encode(t, "gzip", strings.Repeat("\x00", 5<<20)), 13) // each goes on where one ended
	r := ask{line: "POST /", fields: "Content-Encoding: gzip", body: bomb}.request(t)
	if _, why := newGuard().Request(t.Context(), r, nil); why == nil || why.Code != inject.CodeLimit {
		t.Errorf("a bomb: refusal = %v, want %s", why, inject.CodeLimit)
	}
}

// streaming is a body of unknown length that comes a byte at a time.
func streaming(r *http.Request, text string) *http.Request {
	r.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))
	r.ContentLength = -1
	return r
}

func TestStreamedBodyIsCut(t *testing.T) {
	before := "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n"
	r := streaming(ask{line: "POST /"}.request(t), before+placeholder+"\r\n--b--")
	x, why := newGuard().Request(t.Context(), r, bearer())
	if why != nil {
		t.Fatal(why)
	}
	got, err := io.ReadAll(r.Body)
	if cut := (*inject.Refusal)(nil); !errors.As(err, &cut) || cut.Code != inject.CodeMisplaced || x.Refusal() != cut {
		t.Errorf("reading ended with %v; the exchange has %v", err, x.Refusal())
	}
	if len(got) < len(before) || len(got) > len(before)+len(placeholder)/2 {
		t.Errorf("%q went on", got)
	}
	// Half of one is none.
	text := before + placeholder[:len(placeholder)-1]
	r = streaming(ask{line: "POST /"}.request(t), text)
	if _, why := newGuard().Request(t.Context(), r, bearer()); why != nil {
		t.Fatal(why)
	}
	if got := readBody(t, r); got != text {
		t.Errorf("%q went on, want %q", got, text)
	}
}

func TestTrailersAreSearched(t *testing.T) {
	for _, tt := range []struct{ name, field, want string }{
		{"harmless", "Checksum: 1", ""},
		{"placeholder", "Checksum: " + placeholder, inject.CodeMisplaced},
		{"foreign", "X-Api-Key: own", inject.CodeForeign},
		{"foreign-underscores", "X_Api_Key: own", inject.CodeForeign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ask{line: "POST /"}.request(t)
			name, v, _ := strings.Cut(tt.field, ": ")
			r.Trailer = http.Header{name: nil}
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("text"), onRead(func() { r.Trailer.Set(name, v) })))
			r.ContentLength = -1
			x, why := newGuard().Request(t.Context(), r, bearer())
			if why != nil {
				t.Fatal(why)
			}
			_, err := io.ReadAll(r.Body)
			code := ""
			if x.Refusal() != nil {
				code = x.Refusal().Code
			}
			if code != tt.want || (err == nil) != (tt.want == "") {
				t.Errorf("refusal %q and %v, want %q", code, err, tt.want)
			}
		})
	}
}

type onRead func()

func (f onRead) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// echoes are the forms in which a server may send a value back.
func echoes() map[string]string {
	j, _ := json.Marshal(map[string]string{"authorization": "Bearer " + value})
	return map[string]string{
		"plain":      "your token is " + value + ".",
		"json":       string(j),
		"base64":     base64.StdEncoding.EncodeToString([]byte("user:" + value + "::")),
		"base64-url": base64.URLEncoding.EncodeToString([]byte("user:" + value + "::")),
		"percent":    "/login?next=" + url.QueryEscape("/?token="+value),
		"hex":        hex.EncodeToString([]byte(value)),
	}
}

// exchange sends a request with the secret to a server that answers so.
func exchange(t *testing.T, fields string, answer http.HandlerFunc) (*http.Response, *inject.Exchange, *inject.Refusal) {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	r := ask{line: "GET " + srv.URL, fields: fields}.request(t)
	g := newGuard()
	x, why := g.Request(t.Context(), r, bearer())
	if why != nil {
		t.Fatal(why)
	}
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp, x, g.Response(resp, x)
}

func TestEchoIsRefused(t *testing.T) {
	for name, echo := range echoes() {
		for _, how := range []string{"field", "cookie", "length", "chunked", "gzip", "br", "trailer"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				resp, x, why := exchange(t, "Accept-Encoding: gzip, br", func(w http.ResponseWriter, r *http.Request) {
					if got := r.Header.Get("Accept-Encoding"); got != "gzip" {
						t.Errorf("the server may answer in %q", got)
					}
					switch how {
					case "field":
						w.Header().Set("Location", echo)
					case "cookie":
						w.Header().Set("Set-Cookie", "s="+echo)
					case "length":
						_, _ = io.WriteString(w, echo)
					case "chunked":
						_ = http.NewResponseController(w).Flush()
						_, _ = io.WriteString(w, strings.Repeat("before ", 20_000)+echo+"after")
					case "gzip", "br":
						w.Header().Set("Content-Encoding", how)
						_, _ = io.WriteString(w, encode(t, how, echo))
					case "trailer":
						w.Header().Set("Trailer", "Note")
						_, _ = io.WriteString(w, "text")
						w.Header().Set("Note", echo)
					}
				})
				var got []byte
				if why == nil {
					var err error
					got, err = io.ReadAll(resp.Body)
					if err == nil {
						t.Errorf("the whole answer went on: %q", got)
					}
				}
				if x.Refusal() == nil || x.Refusal().Code != inject.CodeEchoed {
					t.Fatalf("refusal = %v, want %s", x.Refusal(), inject.CodeEchoed)
				}
				if bytes.Contains(got, []byte(echo)) || strings.Contains(x.Refusal().Reason, value) {
					t.Error("the value went on")
				}
				if clean := how != "chunked" && how != "trailer" && how != "gzip" && how != "br"; clean && why == nil {
					t.Error("there could have been an answer with a reason")
				}
			})
		}
	}
}

func TestOtherAnswersGoOn(t *testing.T) {
	text := strings.Repeat(`{"message":"not the value, `+value[:len(value)-1]+`"}`, 3000)
	for _, coding := range []string{"", "gzip", "deflate", "br", "zstd"} {
		resp, x, why := exchange(t, "", func(w http.ResponseWriter, _ *http.Request) {
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
			}
			_, _ = io.WriteString(w, encode(t, coding, text))
		})
		if why != nil {
			t.Fatal(why)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != text || x.Refusal() != nil {
			t.Errorf("%q: %d bytes of %d, %v", coding, len(got), len(text), err)
		}
		if resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q: what was decoded is said to be encoded", coding)
		}
	}
}

func TestUnreadableAnswersAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, field, want string }{
		{"unknown-coding", "Content-Encoding: rot13", inject.CodeEncoding},
		{"many-codings", "Content-Encoding: gzip, gzip, gzip, gzip", inject.CodeEncoding},
		{"compressed-messages", "Grpc-Encoding: gzip", inject.CodeEncoding},
		{"a-part", "Status: 206", inject.CodeRange},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, why := exchange(t, "", func(w http.ResponseWriter, _ *http.Request) {
				name, v, _ := strings.Cut(tt.field, ": ")
				w.Header().Set(name, v)
				if name == "Status" {
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = io.WriteString(w, "text")
			})
			if why == nil || why.Code != tt.want {
				t.Errorf("refusal = %v, want %s", why, tt.want)
			}
		})
	}
}

// TestEchoInAName has a server send the value back as the name of a field,
// which loses its case and its separators on the way.
func TestEchoInAName(t *testing.T) {
	for name, want := range map[string]bool{"x-" + strings.Map(token, value): true, "x-" + strings.Map(token, value[1:]): false} {
		_, _, why := exchange(t, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(name, "1") })
		if (why != nil) != want {
			t.Errorf("%s: refusal = %v", name, why)
		}
	}
}

// token has a name's character for each.
func token(c rune) rune {
	if strings.ContainsRune("+/=\"&", c) {
		return '_'
	}
	return c
}

// TestEventsAreNotDelayed reads each event before the next one is sent, also
// through gzip.
func TestEventsAreNotDelayed(t *testing.T) {
	for _, coding := range []string{"", "gzip"} {
		next := make(chan struct{})
		resp, _, why := exchange(t, "Accept-Encoding: gzip", func(w http.ResponseWriter, _ *http.Request) {
			var out io.Writer = w
			flush := func() {}
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
				z := gzip.NewWriter(w)
				out, flush = z, func() { _ = z.Flush() }
			}
			for range 10 {
				_, _ = io.WriteString(out, "data: x\n\ng")
				flush()
				_ = http.NewResponseController(w).Flush()
				<-next
			}
		})
		if why != nil {
			t.Fatal(why)
		}
		buf := make([]byte, len("data: x\n\ng"))
		for range 10 {
			if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "data: x\n\ng" {
				t.Fatalf("read %q, %v", buf, err)
			}
			next <- struct{}{}
		}
	}
}

// TestValuesOfLateAreSearchedFor: a request that needs no secret asks for what
// an earlier one left with the server.
func TestValuesOfLateAreSearchedFor(t *testing.T) {
	g := newGuard()
	route := bearer()
	route.Auth = policy.AuthGuest
	if _, why := g.Request(t.Context(), ask{line: "GET /"}.request(t), route); why != nil {
		t.Fatal(why)
	}
	x, why := g.Request(t.Context(), ask{line: "GET /", fields: "Authorization: Bearer own"}.request(t), route)
	if why != nil {
		t.Fatal(why)
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Note": {value}}}
	if why := g.Response(resp, x); why == nil || why.Code != inject.CodeEchoed {
		t.Errorf("refusal = %v, want %s", why, inject.CodeEchoed)
	}
	// A route without a secret, the negative control.
	x, _ = g.Request(t.Context(), ask{line: "GET /"}.request(t), nil)
	if why := g.Response(resp, x); why != nil {
		t.Errorf("refused: %v", why)
	}
}

func TestStream(t *testing.T) {
	upgraded := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	r := ask{line: "GET /", fields: "Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Extensions: permessage-deflate"}.request(t)
	g := newGuard()
	x, why := g.Request(t.Context(), r, bearer())
	if why != nil {
		t.Fatal(why)
	}
	if r.Header.Get("Sec-WebSocket-Extensions") != "" {
		t.Error("the server may compress messages")
	}
	resp := &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: upgraded}
	if why := g.Response(resp, x); why != nil {
		t.Fatal(why)
	}
	var sent bytes.Buffer
	fine := frame(0x81, []byte("hello"), 5)
	up, down := g.Stream(x, resp.Header, &sent, bytes.NewReader(append(frame(0x81, []byte("hi"), 0), frame(0x81, []byte("it is "+value), 0)...)))
	if _, err := up.Write(fine); err != nil || !bytes.Equal(sent.Bytes(), fine) {
		t.Errorf("%q was sent, %v", sent.Bytes(), err)
	}
	for _, c := range frame(0x81, []byte(placeholder), 77) {
		if _, err := up.Write([]byte{c}); err != nil {
			break
		}
	}
	if x.Refusal() == nil || x.Refusal().Code != inject.CodeMisplaced || sent.Len() > len(fine)+len(placeholder)/2 {
		t.Errorf("refusal = %v after %d bytes", x.Refusal(), sent.Len())
	}
	got, err := io.ReadAll(iotest.OneByteReader(down))
	if cut := (*inject.Refusal)(nil); !errors.As(err, &cut) || cut.Code != inject.CodeEchoed || bytes.Contains(got, []byte(value)) {
		t.Errorf("%q was received, %v", got, err)
	}
}

// TestUnknownUpgradesAreRefused has a connection become what can't be searched
// where a secret goes in; elsewhere, and to what can be, it may.
func TestUnknownUpgradesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		to   string
		want bool
	}{{"foo", true}, {"SPDY/3.1", true}, {"websocket/2", true}, {"websocket", false}, {"WebSocket", false}, {"tcp", false}} {
		a := ask{line: "GET /", fields: "Upgrade: " + tt.to + "\nConnection: Upgrade"}
		g := newGuard()
		x, why := g.Request(t.Context(), a.request(t), bearer())
		if got := why != nil && why.Code == inject.CodeEncoding; got != tt.want {
			t.Errorf("%s: refusal = %v", tt.to, why)
		}
		if _, why := g.Request(t.Context(), a.request(t), nil); why != nil {
			t.Errorf("%s where no secret goes: refusal = %v", tt.to, why)
		}
		if tt.want {
			continue
		}
		for _, header := range []http.Header{{"Upgrade": {tt.to}}, {"Upgrade": {tt.to, "foo"}}, {"Upgrade": {"foo"}}} {
			resp := &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: header}
			if why := g.Response(resp, x); (why != nil) != (len(header["Upgrade"]) > 1 || header.Get("Upgrade") == "foo") {
				t.Errorf("%v: refusal = %v", header, why)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		f.Add(coding, []byte(encode(f, coding, "text "+placeholder)))
	}
	f.Fuzz(func(t *testing.T, coding string, body []byte) {
		r := ask{line: "POST /"}.request(t)
		r.Header.Set("Content-Encoding", coding)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if _, why := newGuard().Request(t.Context(), r, nil); why != nil {
			return
		}
		if got := readBody(t, r); got != string(body) {
			t.Errorf("the body %q became %q", body, got)
		}
	})
}
