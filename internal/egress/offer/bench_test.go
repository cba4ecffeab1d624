package offer_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkCall is a call and its answer, over the socket.
func BenchmarkCall(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "16MiB": 16 << 20} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, "docs")
			text := strings.Repeat("x", size)
			w.serve("docs", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) }))
			b.SetBytes(int64(size))
			for b.Loop() {
				if got, err := w.get("docs", "/"); len(got) != size || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
