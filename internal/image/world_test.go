package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/carboy-sandbox/carboy/internal/image"
)

const me = "uid:1000"

// world is a registry on this machine and a store that pulls from it.
type world struct {
	*image.Store
	t    *testing.T
	dir  string
	opts image.Options
	host string

	mu    sync.Mutex
	asked []string                                          // "GET /v2/…" in order, with the range after it
	hook  func(w http.ResponseWriter, r *http.Request) bool // true: it answered
	waits []time.Duration                                   // what Wait was called with
	log   bytes.Buffer
}

// newWorld opens a store; change may set options first.
func newWorld(t *testing.T, change ...func(*image.Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	reg := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
		hook := w.hook
		w.mu.Unlock()
		if hook == nil || !hook(rw, r) {
			reg.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(srv.Close)
	w.host = strings.TrimPrefix(srv.URL, "http://")
	w.opts.Wait = func(ctx context.Context, d time.Duration) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waits = append(w.waits, d)
		return context.Cause(ctx)
	}
	w.opts.Log = slog.New(slog.NewTextHandler(&locked{w: w}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, c := range change {
		c(&w.opts)
	}
	w.reopen()
	return w
}

type locked struct{ w *world }

func (l *locked) Write(p []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.log.Write(p)
}

// reopen opens the directory again, as after a crash.
func (w *world) reopen() {
	w.t.Helper()
	s, err := image.Open(w.dir, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Store = s
}

// on sets what is asked before the registry.
func (w *world) on(hook func(w http.ResponseWriter, r *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// requests returns those so far whose text has part, and forgets all.
func (w *world) requests(part string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.DeleteFunc(w.asked, func(s string) bool { return !strings.Contains(s, part) || !strings.HasPrefix(s, "GET") })
	w.asked = nil
	return out
}

func (w *world) ref(name string) string { return w.host + "/" + name }

func (w *world) mustPull(owner, name string) image.Image {
	w.t.Helper()
	img, err := w.Pull(w.t.Context(), owner, w.ref(name), nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return img
}

// tree is files by name.
type tree map[string]string

func (f tree) tar() []byte {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, n := range slices.Sorted(maps.Keys(f)) {
		must(tw.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(f[n])), Typeflag: tar.TypeReg}))
		_, err := tw.Write([]byte(f[n]))
		must(err)
	}
	must(tw.Close())
	return b.Bytes()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func zip(b []byte) []byte {
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, err := zw.Write(b)
	must(errorsJoin(err, zw.Close()))
	return z.Bytes()
}

func errorsJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func hexOf(b []byte) string { return strings.TrimPrefix(digest(b), "sha256:") }

// object is JSON in the making.
type object map[string]any

func (o object) json() []byte {
	b, err := json.Marshal(o)
	must(err)
	return b
}

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociGzip     = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// built is an image in all its parts, for tests to damage before it is used.
type built struct {
	conf     object // of the configuration
	man      object
	layers   []object // of the manifest
	tars     [][]byte // uncompressed
	blobs    [][]byte
	manType  string
	confBlob []byte
}

// build makes an image of layers.
func build(layers ...tree) *built {
	var tars [][]byte
	for _, l := range layers {
		tars = append(tars, l.tar())
	}
	return buildOf(tars...)
}

// buildOf makes an image of layers that are archives.
func buildOf(tars ...[]byte) *built {
	b := &built{manType: ociManifest}
	ids := []string{}
	for _, t := range tars {
		z := zip(t)
		b.tars, b.blobs = append(b.tars, t), append(b.blobs, z)
		b.layers = append(b.layers, object{"mediaType": ociGzip, "digest": digest(z), "size": len(z)})
		ids = append(ids, digest(t))
	}
	b.conf = object{
		"os": "linux", "architecture": runtime.GOARCH, "created": "2026-01-02T03:04:05Z",
		"config": object{"User": "app", "Env": []string{"A=1"}, "WorkingDir": "/srv", "Cmd": []string{"run"}, "StopSignal": "SIGINT"},
		"rootfs": object{"type": "layers", "diff_ids": ids},
	}
	b.man = object{"schemaVersion": 2, "mediaType": ociManifest}
	return b
}

// manifest returns the manifest as it is now.
func (b *built) manifest() []byte {
	if b.confBlob == nil {
		b.confBlob = b.conf.json()
	}
	if _, ok := b.man["config"]; !ok {
		b.man["config"] = object{"mediaType": ociConfig, "digest": digest(b.confBlob), "size": len(b.confBlob)}
	}
	if _, ok := b.man["layers"]; !ok {
		b.man["layers"] = b.layers
	}
	return b.man.json()
}

func (b *built) config() object { return b.conf["config"].(object) }

// push puts an image into the registry and returns its digest.
func (w *world) push(repo, tag string, b *built) string {
	w.t.Helper()
	m := b.manifest()
	for _, blob := range append(slices.Clone(b.blobs), b.confBlob) {
		w.pushBlob(repo, blob)
	}
	return w.pushManifest(repo, tag, b.manType, m)
}

func (w *world) pushBlob(repo string, blob []byte) {
	w.send("POST", "/v2/"+repo+"/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob)
}

func (w *world) pushManifest(repo, tag, mediaType string, m []byte) string {
	w.send("PUT", "/v2/"+repo+"/manifests/"+tag, mediaType, m)
	return digest(m)
}

func (w *world) send(method, path, contentType string, body []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.host+path, bytes.NewReader(body))
	must(err)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	must(err)
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
	}
}

// files reads what the layers of an image show, the upper over the lower.
func files(t *testing.T, img image.Image) tree {
	t.Helper()
	out := tree{}
	for _, dir := range img.Layers {
		must(filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(p)
			out[strings.TrimPrefix(p, dir+"/")] = string(b)
			return err
		}))
	}
	return out
}

// left lists what is in a directory of the store.
func (w *world) left(sub string) (names []string) {
	es, err := os.ReadDir(filepath.Join(w.dir, sub))
	must(err)
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}
