package image_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestPull(t *testing.T) {
	w := newWorld(t)
	d := w.push("team/app", "1", build(tree{"a": "low", "b": "low"}, tree{"b": "high"}))
	img := w.mustPull(me, "team/app:1")
	if got, want := files(t, img), (tree{"a": "low", "b": "high"}); !cmp.Equal(got, want) {
		t.Errorf("files = %v, want %v", got, want)
	}
	if img.Name != w.ref("team/app:1") || img.Digest != d || img.Size != 10 || img.OS != "linux" || img.Created.Year() != 2026 {
		t.Errorf("Pull = %+v", img)
	}
	want := image.Config{User: "app", Env: []string{"A=1"}, WorkingDir: "/srv", Cmd: []string{"run"}, StopSignal: "SIGINT"}
	if diff := cmp.Diff(want, img.Config); diff != "" {
		t.Error(diff)
	}
	for _, sub := range []string{"partial"} {
		if left := w.left(sub); len(left) > 0 {
			t.Errorf("%s holds %q after a pull", sub, left)
		}
	}
	w.requests("")
	again := w.mustPull(me, "team/app:1")
	if diff := cmp.Diff(img, again); diff != "" {
		t.Error(diff)
	}
	for _, l := range build(tree{"a": "low", "b": "low"}, tree{"b": "high"}).blobs {
		if got := w.requests(digest(l)); len(got) > 0 {
			t.Errorf("a second pull asked for %q", got)
		}
	}
}

func TestPullByDigest(t *testing.T) {
	w := newWorld(t)
	d := w.push("app", "1", build(tree{"a": "1"}))
	other := w.push("app", "2", build(tree{"a": "2"}))
	img := w.mustPull(me, "app@"+d)
	if img.Digest != d || img.Name != w.ref("app@"+d) {
		t.Errorf("Pull = %+v", img)
	}
	w.on(func(rw http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/manifests/"+d) {
			r.URL.Path = strings.Replace(r.URL.Path, d, other, 1)
		}
		return false
	})
	_, err := w.Pull(t.Context(), me, w.ref("app@"+d), nil, nil)
	wantError(t, err, sandbox.Invalid, "its content has the digest "+other)
}

func wantError(t *testing.T, err error, kind sandbox.Kind, text string) {
	t.Helper()
	if err == nil || sandbox.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("error = %v (%s), want %s: %s", err, sandbox.KindOf(err), kind, text)
	}
}

func TestPlatforms(t *testing.T) {
	tests := []struct {
		name string
		ps   []object
		want string // of the error; "": it is found
	}{
		{"this", []object{{"os": "linux", "architecture": "s390x"}, {"os": "linux", "architecture": runtime.GOARCH}}, ""},
		{"attested", []object{{"os": "unknown", "architecture": "unknown"}, {"os": "linux", "architecture": runtime.GOARCH}}, ""},
		{"alone-and-silent", []object{nil}, ""},
		{"none", []object{{"os": "linux", "architecture": "s390x"}, {"os": "windows", "architecture": runtime.GOARCH}, {"os": "linux", "architecture": "arm", "variant": "v7"}}, "there are: linux/s390x, windows/" + runtime.GOARCH + ", linux/arm/v7"},
		{"nothing", []object{{"os": "unknown", "architecture": "unknown"}, {"os": "unknown", "architecture": "x"}}, "there are: none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			b := build(tree{"a": "1"})
			d := w.push("app", "one", b)
			var ms []object
			for _, p := range tt.ps {
				m := object{"mediaType": ociManifest, "digest": d, "size": len(b.manifest())}
				if p != nil {
					m["platform"] = p
				}
				ms = append(ms, m)
			}
			top := w.pushManifest("app", "all", ociIndex, object{"schemaVersion": 2, "manifests": ms}.json())
			img, err := w.Pull(t.Context(), me, w.ref("app:all"), nil, nil)
			if tt.want != "" {
				wantError(t, err, sandbox.Unsupported, tt.want)
				return
			}
			if err != nil || img.Digest != d {
				t.Fatalf("Pull = %+v, %v", img, err)
			}
			for _, ref := range []string{"app@" + top, "app@" + d} {
				if _, err := w.Find(t.Context(), me, w.ref(ref)); err != nil {
					t.Errorf("Find(%s) = %v", ref, err)
				}
			}
			if pinned := w.mustPull(me, "app@"+top); pinned.Digest != d {
				t.Errorf("by the digest of the index it is %s", pinned.Digest)
			}
		})
	}
}

func TestResume(t *testing.T) {
	big := strings.Repeat("carboy", 50_000)
	b := build(tree{"big": noise(300_000)}, tree{"other": big})
	tests := []struct {
		name   string
		serve  func(blob []byte) func(http.ResponseWriter, *http.Request) bool
		ranges []string // of the requests for the first layer
		waits  int
		kind   sandbox.Kind
		text   string
	}{
		{"never-cut", func([]byte) func(http.ResponseWriter, *http.Request) bool { return nil }, []string{""}, 0, "", ""},
		{"cut-twice", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob, part{to: 100_000}, part{to: 200_000})
		}, []string{"", "bytes=100000-", "bytes=200000-"}, 2, "", ""},
		{"no-ranges", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob, part{to: 100_000}, part{whole: true})
		}, []string{"", "bytes=100000-"}, 1, "", ""},
		{"not-satisfiable", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob, part{to: 100_000}, part{status: 416})
		}, []string{"", "bytes=100000-", ""}, 1, "", ""},
		{"other-range", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob, part{to: 100_000}, part{from: 50_000, partial: true})
		}, []string{"", "bytes=100000-", ""}, 1, "", ""},
		{"too-often-without-a-byte", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob, part{to: 100}, part{from: 100, to: 100, partial: true}, part{from: 100, to: 100, partial: true}, part{from: 100, to: 100, partial: true}, part{from: 100, to: 100, partial: true}, part{from: 100, to: 100, partial: true})
		}, []string{"", "bytes=100-", "bytes=100-", "bytes=100-", "bytes=100-"}, 4, sandbox.Unavailable, "the connection was cut"},
		{"wrong-bytes", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			bad := slices.Clone(blob)
			bad[1000] ^= 1
			return served(bad, part{whole: true})
		}, []string{""}, 0, sandbox.Invalid, "what the registry sent has the digest"},
		{"wrong-then-right", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			bad := slices.Clone(blob)
			bad[1000] ^= 1
			return served(bad, part{to: 100_000})
		}, []string{"", "bytes=100000-"}, 1, sandbox.Invalid, "what the registry sent has the digest"},
		{"too-long", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(append(slices.Clone(blob), "more"...), part{whole: true})
		}, []string{""}, 0, sandbox.Invalid, "are missing"},
		{"too-long-unsaid", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(append(slices.Clone(blob), "more"...), part{whole: true, chunked: true})
		}, []string{""}, 0, sandbox.Invalid, "sends more than"},
		{"too-short", func(blob []byte) func(http.ResponseWriter, *http.Request) bool {
			return served(blob[:1000], part{whole: true})
		}, []string{""}, 0, sandbox.Invalid, "are missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.push("app", "1", b)
			serve := tt.serve(b.blobs[0])
			w.on(func(rw http.ResponseWriter, r *http.Request) bool {
				return serve != nil && strings.HasSuffix(r.URL.Path, "/blobs/"+digest(b.blobs[0])) && serve(rw, r)
			})
			w.requests("")
			img, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
			if tt.kind != "" {
				wantError(t, err, tt.kind, tt.text)
			} else if err != nil || files(t, img)["other"] != big {
				t.Errorf("Pull = %v", err)
			}
			var ranges []string
			for _, r := range w.requests(digest(b.blobs[0])) {
				_, after, _ := strings.Cut(r, digest(b.blobs[0]))
				ranges = append(ranges, strings.TrimSuffix(strings.TrimSpace(after), fmt.Sprint(len(b.blobs[0])-1)))
			}
			if !slices.Equal(ranges, tt.ranges) || len(w.waits) != tt.waits {
				t.Errorf("asked for %q after %v, want %q after %d waits", ranges, w.waits, tt.ranges, tt.waits)
			}
		})
	}
}

// part is how one request for a blob is answered.
type part struct {
	from, to       int64 // to 0: the end
	whole, partial bool  // whole: to the end, as status 200; partial: as status 206
	chunked        bool  // no length is said
	status         int   // this alone
}

// served answers the first requests so, and leaves the others alone. An
// answer that ends before the blob does is cut off.
func served(blob []byte, parts ...part) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(parts) == 0 {
			return false
		}
		p := parts[0]
		parts = parts[1:]
		if p.status != 0 {
			w.WriteHeader(p.status)
			return true
		}
		from, to := p.from, p.to
		if start, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !p.whole && !p.partial {
			start, _, _ = strings.Cut(start, "-")
			n, err := strconv.ParseInt(start, 10, 64)
			must(err)
			from, p.partial = n, true
		}
		if to == 0 {
			to = int64(len(blob))
		}
		if !p.chunked {
			w.Header().Set("Content-Length", fmt.Sprint(int64(len(blob))-from))
		}
		if p.partial {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(blob)-1, len(blob)))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, err := w.Write(blob[from:to])
		must(err)
		if to < int64(len(blob)) {
			must(http.NewResponseController(w).Flush())
			panic(http.ErrAbortHandler)
		}
		return true
	}
}

// noise does not compress, and is the same each time.
func noise(n int) string {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

func TestResumeInTheNextPull(t *testing.T) {
	w := newWorld(t)
	b := build(tree{"big": noise(300_000)})
	w.push("app", "1", b)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	serve := served(b.blobs[0], part{to: 100_000})
	w.on(func(rw http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, digest(b.blobs[0])) && serve(rw, r)
	})
	w.opts.Wait = func(context.Context, time.Duration) error { cancel(gone); return gone }
	w.reopen()
	if _, err := w.Pull(ctx, me, w.ref("app:1"), nil, nil); !errors.Is(err, gone) {
		t.Fatalf("Pull = %v, want %v", err, gone)
	}
	w.reopen()
	w.requests("")
	w.mustPull(me, "app:1")
	if got := w.requests("bytes=100000-"); len(got) != 1 {
		t.Errorf("asked %q for the rest", got)
	}
}

// A partial file that a crash left with other bytes costs a second download,
// not the pull.
func TestDamagedPartialFile(t *testing.T) {
	w := newWorld(t)
	b := build(tree{"big": noise(300_000)})
	w.push("app", "1", b)
	w.on(servedOf(b, part{to: 100_000}))
	ctx, cancel := context.WithCancelCause(t.Context())
	wait := w.opts.Wait
	w.opts.Wait = func(context.Context, time.Duration) error { cancel(nil); return context.Canceled }
	w.reopen()
	if _, err := w.Pull(ctx, me, w.ref("app:1"), nil, nil); err == nil {
		t.Fatal("the first pull succeeded")
	}
	for _, n := range w.left("partial") {
		must(os.WriteFile(filepath.Join(w.dir, "partial", n), make([]byte, 100_000), 0o600))
	}
	w.opts.Wait = wait
	w.reopen()
	w.requests("")
	w.mustPull(me, "app:1")
	if got := w.requests(digest(b.blobs[0])); len(got) != 2 {
		t.Errorf("asked %q, want for the rest and then for all", got)
	}
}

func servedOf(b *built, parts ...part) func(http.ResponseWriter, *http.Request) bool {
	serve := served(b.blobs[0], parts...)
	return func(rw http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, digest(b.blobs[0])) && serve(rw, r)
	}
}
