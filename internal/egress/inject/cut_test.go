package inject_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
)

// begun is text in a content coding, flushed and not ended.
func begun(t *testing.T, coding, text string) string {
	t.Helper()
	return coded(t, coding, text, func(w coder) error { return w.Flush() })
}

// leaked is how many of value's first characters got ends in.
func leaked(got []byte) int {
	for n := len(value); n > 0; n-- {
		if bytes.HasSuffix(got, []byte(value[:n])) {
			return n
		}
	}
	return 0
}

// breaks are the ways in which an answer may break off.
var breaks = map[string]func(t *testing.T, w http.ResponseWriter, text string){
	"length": func(_ *testing.T, w http.ResponseWriter, text string) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)+1))
		_, _ = io.WriteString(w, text)
	},
	"long-length": func(_ *testing.T, w http.ResponseWriter, text string) {
		w.Header().Set("Content-Length", fmt.Sprint(1<<20))
		_, _ = io.WriteString(w, text)
	},
	"chunked": func(_ *testing.T, w http.ResponseWriter, text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"gzip": brokenCoding("gzip"), "deflate": brokenCoding("deflate"), "deflate-bare": brokenCoding("deflate-bare"),
	"br": brokenCoding("br"), "zstd": brokenCoding("zstd"),
	"gzip-in-br": func(t *testing.T, w http.ResponseWriter, text string) {
		w.Header().Set("Content-Encoding", "gzip, br")
		_, _ = io.WriteString(w, begun(t, "br", begun(t, "gzip", text)))
	},
	"gzip-and-more": func(t *testing.T, w http.ResponseWriter, text string) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, encode(t, "gzip", text)+"and what is no gzip")
	},
}

func brokenCoding(coding string) func(*testing.T, http.ResponseWriter, string) {
	return func(t *testing.T, w http.ResponseWriter, text string) {
		w.Header().Set("Content-Encoding", strings.TrimSuffix(coding, "-bare"))
		_, _ = io.WriteString(w, begun(t, coding, text))
	}
}

// TestBrokenOffAnswers has a server send all of a value but its last character
// and break off. What was held back stays so. The same with other text is the
// control: all of it goes on, and its end is seen to be none.
func TestBrokenOffAnswers(t *testing.T) {
	for name, broken := range breaks {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-http2-%v", name, http2), func(t *testing.T) {
				for _, text := range []string{"it is " + value[:len(value)-1], "it is " + value[1:]} {
					resp := answered(t, http2, func(w http.ResponseWriter) { broken(t, w, text) })
					got, err := io.ReadAll(resp.Body)
					switch secret := strings.HasSuffix(text, value[:len(value)-1]); {
					case err == nil:
						t.Errorf("%q ended well", got)
					case secret && leaked(got) > len(value)/4:
						t.Errorf("%d of %d characters of the value went on", leaked(got), len(value))
					case !secret && string(got) != text:
						t.Errorf("%q went on, want %q", got, text)
					}
				}
			})
		}
	}
}

// answered is an answer as the guard has left it.
func answered(t *testing.T, http2 bool, answer func(http.ResponseWriter)) *http.Response {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	r := ask{line: "GET " + srv.URL}.request(t)
	g := newGuard()
	x, why := g.Request(t.Context(), r, bearer())
	if why != nil {
		t.Fatal(why)
	}
	resp, err := srv.Client().Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if got := resp.ProtoMajor == 2; got != http2 {
		t.Fatalf("the answer is of HTTP/%d", resp.ProtoMajor)
	}
	if why := g.Response(resp, x); why != nil {
		t.Fatal(why)
	}
	return resp
}

// TestReadWithAnError has data and an error come at once.
func TestReadWithAnError(t *testing.T) {
	for _, end := range []error{io.ErrUnexpectedEOF, errors.New("reset"), fmt.Errorf("wrapped: %w", io.EOF)} {
		g := newGuard()
		x, why := g.Request(t.Context(), ask{line: "GET /"}.request(t), bearer())
		if why != nil {
			t.Fatal(why)
		}
		for _, size := range []int{1, 7, 1 << 10} {
			src := iotest.DataErrReader(io.MultiReader(&sized{strings.NewReader(value[:len(value)-1]), size}, iotest.ErrReader(end)))
			resp := &http.Response{StatusCode: 200, Body: io.NopCloser(src), ContentLength: -1}
			if why := g.Response(resp, x); why != nil {
				t.Fatal(why)
			}
			if got, err := io.ReadAll(resp.Body); !errors.Is(err, end) || len(got) > len(value)/4 {
				t.Errorf("%v in pieces of %d: %d characters went on, and %v", end, size, len(got), err)
			}
		}
	}
}

type sized struct {
	r io.Reader
	n int
}

func (s *sized) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

// TestEndsInAValue has an answer end well in a part of a value: the most of
// one is as good as all, and may be what is left where an end can't be told
// from a break.
func TestEndsInAValue(t *testing.T) {
	for n := range len(value) {
		want := 2*n > len(value)
		for _, how := range []string{"length", "chunked", "field"} {
			_, x, why := exchange(t, "", func(w http.ResponseWriter, _ *http.Request) {
				switch how {
				case "field":
					w.Header().Set("Note", "it is "+value[:n])
				case "chunked":
					_ = http.NewResponseController(w).Flush()
					fallthrough
				default:
					_, _ = io.WriteString(w, "it is "+value[:n])
				}
			})
			if why == nil && how == "chunked" {
				continue // seen below
			}
			if got := x.Refusal() != nil; got != want {
				t.Errorf("%d characters, %s: refused: %v, want %v", n, how, got, want)
			}
		}
		resp := answered(t, false, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "it is "+value[:n])
		})
		got, err := io.ReadAll(resp.Body)
		if (err != nil) != want || want && leaked(got) > len(value)/4 || !want && string(got) != "it is "+value[:n] {
			t.Errorf("%d characters, chunked: %q, %v", n, got, err)
		}
	}
}

// TestBrokenOffStreams does so with what was upgraded: a message cut within a
// frame, between frames, and within a ping.
func TestBrokenOffStreams(t *testing.T) {
	most := value[:len(value)-1]
	header := func(to string) http.Header { return http.Header{"Upgrade": {to}, "Connection": {"Upgrade"}} }
	tests := []struct {
		name, up string
		stream   []byte
		cut      bool // an error is what it ends in
	}{
		{"within-a-frame", "websocket", frame(0x81, []byte("it is "+value), 0)[:2+6+len(most)], true},
		{"within-a-frame-masked", "websocket", frame(0x81, []byte("it is "+value), 99)[:6+6+len(most)], true},
		{"within-a-ping", "websocket", frame(0x89, []byte(value), 0)[:2+len(most)], true},
		{"within-a-head", "websocket", append(frame(0x01, []byte("it is "+most), 0), 0x80), true},
		{"between-frames", "websocket", frame(0x01, []byte("it is "+most), 0), true},
		{"bytes", "tcp", []byte("it is " + most), true},
		{"other-text-within-a-frame", "websocket", frame(0x81, []byte("it is "+value[1:]), 0)[:20], true},
		{"other-text", "websocket", frame(0x81, []byte("it is "+value[1:]), 0), false},
		{"other-bytes", "tcp", []byte("it is " + value[1:]), false},
		{"a-little", "tcp", []byte("it is " + value[:len(value)/2]), false},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 1 << 10} {
			g := newGuard()
			x, why := g.Request(t.Context(), ask{line: "GET /", fields: "Upgrade: " + tt.up + "\nConnection: Upgrade"}.request(t), bearer())
			if why != nil {
				t.Fatal(why)
			}
			_, down := g.Stream(x, header(tt.up), io.Discard, &sized{bytes.NewReader(tt.stream), size})
			got, err := io.ReadAll(down)
			if (err != nil) != tt.cut {
				t.Errorf("%s: %v", tt.name, err)
			}
			if !strings.HasPrefix(tt.name, "other") && !strings.HasPrefix(tt.name, "a-little") && len(got) > len(tt.stream)-len(most)*3/4 {
				t.Errorf("%s: %d of %d bytes went on", tt.name, len(got), len(tt.stream))
			}
			if (strings.HasPrefix(tt.name, "other") || tt.name == "a-little") && !slices.Equal(got, tt.stream) {
				t.Errorf("%s: %d of %d bytes went on", tt.name, len(got), len(tt.stream))
			}
			if cut := (*inject.Refusal)(nil); errors.As(err, &cut) && cut.Code != inject.CodeEchoed {
				t.Errorf("%s: %v", tt.name, cut.Code)
			}
		}
	}
}
