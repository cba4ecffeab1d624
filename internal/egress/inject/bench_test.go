package inject_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
)

func BenchmarkSearch(b *testing.B) {
	random := make([]byte, 1<<20)
	for i, rnd := 0, rand.NewChaCha8([32]byte{1}); i < len(random); i += 8 {
		v := rnd.Uint64()
		for j := range 8 {
			random[i+j] = byte(v >> (8 * j))
		}
	}
	letters := make([]byte, len(random))
	for i, c := range random {
		letters[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[c&63]
	}
	texts := []struct {
		name string
		text []byte
	}{
		{"random", random},
		{"base64", letters},
		{"json", []byte(strings.Repeat(`{"id":12345,"name":"an ordinary name","text":"some \"text\" over\nlines","url":"https:\/\/api.example\/v1"},`, 10_000))},
		{"html", []byte(strings.Repeat("<p class=\"plain\">Some prose &amp; a <a href=\"/link?a=1&b=2\">link</a>.</p>\n", 14_000))},
		{"zeros", make([]byte, 1<<20)},
	}
	for _, values := range [][]string{
		{"ghp_0123456789abcdefghijklmnopqrstuvwxyz"},
		{"ghp_0123456789abcdefghijklmnopqrstuvwxyz", "sk-ant-api03-" + strings.Repeat("Ab3_", 24), "npm_abcdefghijklmnopqrstuvwxyz0123456789"},
	} {
		for _, tt := range texts {
			b.Run(tt.name+"/"+string(rune('0'+len(values))), func(b *testing.B) {
				s := inject.NewSearch(values)
				b.SetBytes(int64(len(tt.text)))
				for b.Loop() {
					for at := 0; at < len(tt.text); at += 32 << 10 {
						if s(tt.text[at:min(at+32<<10, len(tt.text))]) {
							b.Fatal("found")
						}
					}
				}
			})
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	g := newGuard()
	fields := http.Header{
		"Accept": {"*/*"}, "User-Agent": {"curl/8.5.0"}, "Accept-Encoding": {"gzip, deflate, br"}, "X-Request-Id": {"0123456789abcdef0123456789abcdef"},
		"Content-Type": {"application/json"}, "Authorization": {"Bearer " + placeholder},
	}
	body := []byte(strings.Repeat(`{"role":"user","content":"some text of a message"},`, 40))
	route := bearer()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://api.example/v1/messages?beta=true", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = fields.Clone()
		x, why := g.Request(b.Context(), r, route)
		if why != nil {
			b.Fatal(why)
		}
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
		if why := g.Response(resp, x); why != nil {
			b.Fatal(why)
		}
	}
}
