package docs

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/test/internet"
)

// token is the secret in the documents' examples, and what the server of the
// example wants.
const token = "ghp_example0123456789"

// sites are what there is on that internet.
var sites = map[string]http.Handler{
	"example.com": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<h1>Example Domain</h1>\n") }),
	"api.example.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/items" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `["one","two"]`+"\n")
	}),
	"api.github.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"message":"Bad credentials"}`+"\n")
			return
		}
		_, _ = io.WriteString(w, `{"login":"me"}`+"\n")
	}),
}

// connect gives the world a network of its own: all that a document can reach.
func (w *world) connect(t *testing.T) {
	t.Helper()
	net, err := internet.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(net.Close)
	all := maps.Clone(sites)
	all["git.example.com"] = forge(t, w.dir)
	if err := net.Serve(internet.A, internet.ByHost(all), slices.Sorted(maps.Keys(all))...); err != nil {
		t.Fatal(err)
	}
	config, roots := filepath.Join(w.dir, "config", "carboy"), filepath.Join(w.dir, "roots.pem")
	if err := os.Mkdir(config, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		roots: net.Roots(), filepath.Join(config, "config.json"): []byte(`{"resolvers": ["` + internet.Resolver + `:53"]}`),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.net = net
	w.env = append(w.env, "SSL_CERT_FILE="+roots, "SSL_CERT_DIR=/nonexistent")
}
