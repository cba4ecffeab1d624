package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// registryPassword opens the private registry of a world, to the user puller.
const registryPassword = "open-sesame-4711"

// registries are those of a world, as images are named there. Each has
// small:1, the one below open/ and the other below private/.
type registries struct{ open, private string }

// registries serves both over TLS, by an address: those who pull ask the
// machine's own resolver, which is not in the world.
func (w *world) registries() registries {
	w.t.Helper()
	reg := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	direct := httptest.NewServer(reg)
	w.t.Cleanup(direct.Close)
	img := smallImage(w.t)
	for _, repository := range []string{"open", "private"} {
		ref, err := name.NewTag(strings.TrimPrefix(direct.URL, "http://")+"/"+repository+"/small:1", name.Insecure)
		if err == nil {
			err = remote.Write(ref, img)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	guarded := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "puller" || password != registryPassword {
			rw.Header().Set("WWW-Authenticate", `Basic realm="puller"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		reg.ServeHTTP(rw, r)
	})
	cert := w.certificate(func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP(worldC)} }, worldC)
	out := registries{open: worldC + ":443", private: worldC + ":5443"}
	for address, handler := range map[string]http.Handler{out.open: reg, out.private: guarded} {
		srv := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
		l := w.listen(address)
		go srv.ServeTLS(l, "", "") // it ends with the test
		w.t.Cleanup(func() { srv.Close() })
	}
	return out
}

// holding are the files of a home that have a text in them: records, logs, and
// what sandboxes and builds wrote.
func (h *home) holding(text string) []string {
	h.t.Helper()
	const most = 16 << 20 // bytes of a file that is read
	var found []string
	_ = filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "hostimage" {
			return fs.SkipDir // the machine's own files
		}
		if err != nil || !d.Type().IsRegular() {
			return nil // what runs may go meanwhile
		}
		if fi, err := d.Info(); err == nil && fi.Size() <= most {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
				found = append(found, path)
			}
		}
		return nil
	})
	return found
}
