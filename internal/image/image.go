// Package image keeps container images for sandboxes to start from: it pulls
// them from registries, reads them from archives, and holds their layers
// unpacked, each once, by the digest of its content.
//
// Registries, archives and what is in them are hostile. Every byte that is
// used was checked against the digest it was asked for; sizes, counts and
// nesting are bounded before anything is allocated; credentials are the
// caller's, go to the named registry alone, and are in no error. It refuses
// plain HTTP but to this machine, images for other machines, layers that may
// not be distributed, digests other than SHA-256, and every media type that it
// does not know. One owner's names are not seen by another, and nobody is
// given a layer because he knows its digest: he has its content, or an image
// that has it.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

// Options tune a Store. The zero value works.
type Options struct {
	// Unpack makes the tree of one layer in an empty directory, over the trees below it, the lowest
	// first. Default: layer.Unpack.
	Unpack func(ctx context.Context, r io.Reader, dir string, below []string) (layer.Result, error)
	// Stands is layer.Stands, its default, with the rights that Unpack has.
	Stands func(ctx context.Context, trees []string) (bool, error)
	// Remove takes a tree away. Default: os.RemoveAll.
	Remove func(dir string) error
	// UserXattr is for the default Unpack and Stands: marks that overlays without
	// privilege understand.
	UserXattr bool
	Log       *slog.Logger      // default: discard
	Transport http.RoundTripper // default: one with timeouts that heeds the proxy variables
	Limits    Limits

	// Room refuses to begin a pull or an import where the disk has too little room for any;
	// what is a word for it. Default: there is always some.
	Room func(owner, what string) error

	Now func() time.Time // default: time.Now
	// Wait returns after d, or when ctx ends with its cause. Default: a timer.
	Wait func(ctx context.Context, d time.Duration) error
	// Step is called by name before each step that changes the store for
	// good, and its error is that step's: how tests make steps fail.
	Step func(name string) error
}

// Limits bound what one image may take. A field that is zero is its default.
type Limits struct {
	Manifest int64 // bytes of a manifest or index: 4 MiB
	Config   int64 // bytes of an image's configuration: 8 MiB
	Blob     int64 // bytes of one compressed layer: 16 GiB
	Archive  int64 // bytes of an archive, uncompressed: 64 GiB
}

// Image is an image of the store.
type Image struct {
	Name    string   // as its owner calls it, in the short form: "debian:12", or "" where it was found by digest alone
	Digest  string   // of the manifest: "sha256:…"
	Layers  []string // directories of the unpacked layers, lowest first, absolute; none is there twice
	Config  Config
	Size    int64 // bytes of all layers, unpacked
	Created time.Time
	OS      string
	Arch    string   // as Go calls it: "amd64"
	Notes   []string // what unpacking left out
}

// Config is what the image says about running it. It was checked: no text has
// a NUL, and each variable has a name and an "=".
type Config struct {
	User       string            `json:"user,omitempty"` // as in a Dockerfile: name or number, a group after ":"
	Env        []string          `json:"env,omitempty"`  // NAME=value
	WorkingDir string            `json:"working_dir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	StopSignal string            `json:"stop_signal,omitempty"` // "SIGTERM", "TERM" or "15"
}

// Auth is what a registry is told about who asks. Printed by whatever means it
// shows nothing.
type Auth struct {
	Username, Password string
	IdentityToken      string // to be exchanged for a token at the registry's token server
	RegistryToken      string // sent as it is
}

const hidden = "(credentials)"

// String hides all.
func (Auth) String() string { return hidden }

// Format hides all, for every verb.
func (Auth) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue hides all.
func (Auth) LogValue() slog.Value { return slog.StringValue(hidden) }

// Phases of a pull or an import.
const (
	PhaseResolve  = "resolve"  // finding out which image is meant
	PhaseDownload = "download" // reading a layer from the registry, or the archive from its sender
	PhaseUnpack   = "unpack"   // making a layer's files; Done counts bytes of the compressed layer
	PhaseDone     = "done"     // of a layer, or with no layer of the image
)

// Progress is how far something has come.
type Progress struct {
	Layer       string // the first 12 digits of the layer's digest, or ""
	Phase       string
	Done, Total int64 // bytes; Total is 0 where it is not known
}

// countingReader tells how many bytes have been read.
type countingReader struct {
	r    io.Reader
	n    int64
	err  error // of r, other than its end
	each func(n int64)
}

// Read reads.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	c.each(c.n)
	return n, err
}

// reporter hands on progress, one call at a time and none too often.
type reporter struct {
	now  func() time.Time
	to   func(Progress)
	mu   sync.Mutex
	last map[string]mark
}

type mark struct {
	phase string
	at    time.Time
}

// every is the shortest time between two reports of the same phase of a layer.
const every = 100 * time.Millisecond

func (r *reporter) report(layer, phase string, done, total int64) {
	if r.to == nil {
		return
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.last[layer]; m.phase == phase && now.Sub(m.at) < every {
		return
	}
	r.last[layer] = mark{phase, now}
	r.to(Progress{Layer: layer, Phase: phase, Done: done, Total: total})
}
