package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAnswerEnds answers whole while the request's body has neither ended nor
// will: the guest sees the answer's end.
func TestAnswerEnds(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example"), worldOptions{})
		w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			http.Error(rw, "go away", http.StatusTeapot)
		}))
		pr, pw := io.Pipe()
		defer pw.Close()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://a.example/", io.MultiReader(strings.NewReader("begun"), pr))
		resp, err := w.client(http2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		pw.Close() // the client waits for its own writing
		if err != nil || resp.StatusCode != http.StatusTeapot || string(got) != "go away\n" {
			t.Errorf("answered %d, %q, %v", resp.StatusCode, got, err)
		}
	})
}
