package webhook

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/test/patience"
)

var secret = []byte("0123456789abcdef")

func TestCheck(t *testing.T) {
	for target, ok := range map[string]bool{
		"https://hooks.example.com/x?token=1": true, "http://127.0.0.1:8000/": true, "http://[::1]/": true,
		"http://hooks.example.com/": false, "http://localhost/": false, "ftp://example.com/": false, "https://": false,
		"https://me:pw@example.com/": false, "/x": false, "": false, "https://example.com/#x": false,
	} {
		if err := Check(target, secret); (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
	if Check("https://example.com/", []byte("short")) == nil {
		t.Error("a short secret is taken")
	}
}

// What is sent is signed; a redirect is not followed, and what is too much is dropped.
func TestTell(t *testing.T) {
	type got struct {
		a    api.Approval
		sign bool
	}
	seen := make(chan got, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/hook", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var a api.Approval
		_ = json.Unmarshal(body, &a)
		seen <- got{a, r.Header.Get(HeaderSignature) == Sign(secret, r.Header.Get(HeaderTime), body) && strings.HasPrefix(r.Header.Get(HeaderSignature), "sha256=")}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	h := New(srv.URL+"/hook", secret, slog.New(slog.DiscardHandler))
	defer h.Close()
	for i := range int64(2) {
		h.Tell(api.Approval{ID: i + 1, State: "asked"})
		select {
		case g := <-seen:
			if g.a.ID != i+1 || !g.sign {
				t.Errorf("received %+v", g)
			}
		case <-time.After(patience.For(10 * time.Second)):
			t.Fatal("nothing came")
		}
	}
}

// A hook that does not answer holds nobody up.
func TestTellDoesNotWait(t *testing.T) {
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer srv.Close()
	defer close(stop)
	h := New(srv.URL, secret, slog.New(slog.DiscardHandler))
	for i := range 10 * maxQueue {
		h.Tell(api.Approval{ID: int64(i)})
	}
	h.Close()
}
