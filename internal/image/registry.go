package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	maxTries = 5                // in a row that brought nothing
	maxPause = time.Minute      // that a registry may ask for
	stall    = 60 * time.Second // without one byte
)

// accepted is every type of manifest that a registry may answer with.
var accepted = strings.Join([]string{
	string(types.OCIImageIndex), string(types.DockerManifestList),
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}, ", ")

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// registry is a repository that has been let into.
type registry struct {
	s      *Store
	ref    reference
	client *http.Client
}

// connect finds out how the registry wants to be asked, and gets a token where
// it wants one.
func (s *Store) connect(ctx context.Context, ref reference, auth *Auth, outside bool) (*registry, error) {
	r := &registry{s: s, ref: ref}
	who := authn.Anonymous
	if auth != nil {
		who = authn.FromConfig(authn.AuthConfig{
			Username: auth.Username, Password: auth.Password,
			IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		})
	}
	host := ref.repo.RegistryStr()
	g := &guard{inner: s.opts.Transport, registry: host, local: loopback(host)}
	if outside {
		g.outside = s.outside
	}
	base := transport.NewUserAgent(g, "carboy")
	err := r.try(ctx, func() error {
		t, err := transport.NewWithContext(ctx, ref.repo.Registry, who, base, []string{ref.repo.Scope(transport.PullScope)})
		r.client = &http.Client{Transport: t}
		return err
	})
	return r, err
}

// try calls f until it succeeds, fails for good, or has failed too often. What
// comes back is fit to show: it has no text of the registry's.
func (r *registry) try(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			return nil
		}
		if err := r.pause(ctx, err, n); err != nil {
			return err
		}
	}
}

// pause waits before another try after err, the n-th in a row, or says why
// there should be none.
func (r *registry) pause(ctx context.Context, err error, n int) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	shown := r.clean(err)
	if !again(err) || n >= maxTries {
		return shown
	}
	d := time.Second << (n - 1)
	if b, ok := errors.AsType[*busy](err); ok && b.after > 0 {
		d = b.after
	}
	if d > maxPause {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: it asks to wait %v", r.host(), d).WithHint("try again then")
	}
	r.s.opts.Log.Debug("asking the registry again", "registry", r.host(), "after", d, "error", shown)
	return r.s.opts.Wait(ctx, d)
}

func (r *registry) host() string { return r.ref.repo.RegistryStr() }

// again reports whether an error may pass.
func again(err error) bool {
	if _, ok := errors.AsType[*busy](err); ok {
		return true
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, errStalled) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// clean turns what a request came to into an error that says what happened
// and repeats nothing that the registry sent: it may have sent credentials
// back, or be something else than a registry, which is nobody's to read.
func (r *registry) clean(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	if b, ok := errors.AsType[*busy](err); ok {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: it answers %d %s", r.host(), b.status, http.StatusText(b.status)).WithHint("try again later")
	}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return r.refusal(e.StatusCode)
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return sandbox.Errorf(sandbox.Denied, "registry %s: %s", r.host(), term.Escape(e.Error()))
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: no machine of that name is known", r.host()).
			WithHint("check the name, and that this machine has a network; carboy image ls has what is here already")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: connection refused: nothing listens there", r.host()).
			WithHint("check the name and the port")
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: %s", r.host(), term.Escape(e.Err.Error())).WithHint("check that this machine has a network, then try again")
	}
	if again(err) {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: the connection was cut, or nothing came over it", r.host()).WithHint("try again: what is there already is kept")
	}
	return sandbox.Errorf(sandbox.Unavailable, "registry %s: it does not answer as a registry does", r.host())
}

func (r *registry) refusal(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.Errorf(sandbox.Denied, "registry %s: it refuses %s (status %d): the image was not found, or needs other credentials", r.host(), r.ref.repository(), status).
			WithHint("docker login %s", r.host())
	case http.StatusNotFound:
		return sandbox.Errorf(sandbox.NotFound, "registry %s: it has no such image or blob", r.host())
	}
	return sandbox.Errorf(sandbox.Unavailable, "registry %s: it answers %d %s", r.host(), status, http.StatusText(status))
}

var errStalled = errors.New("nothing came for a minute")

// get asks for something of the repository. The statuses that are fine are
// named; the body ends with errStalled when nothing comes.
func (r *registry) get(ctx context.Context, path string, h http.Header, fine ...int) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	u := fmt.Sprintf("%s://%s/v2/%s/%s", r.ref.repo.Scheme(), r.host(), r.ref.repo.RepositoryStr(), path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	req.Header = h
	resp, err := r.client.Do(req)
	if err == nil {
		if err = transport.CheckError(resp, fine...); err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	b := &stallReader{ReadCloser: resp.Body, ctx: ctx, cancel: cancel}
	b.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	resp.Body = b
	return resp, nil
}

// stallReader ends a body over which nothing comes.
type stallReader struct {
	io.ReadCloser
	ctx    context.Context // of this one request
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// Read reads.
func (b *stallReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(stall)
	}
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

// Close closes.
func (b *stallReader) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// manifest is a fetcher: without a digest it asks for what the reference says.
func (r *registry) manifest(ctx context.Context, d descriptor) (b []byte, t types.MediaType, err error) {
	id := d.Digest
	if id == "" {
		id = r.ref.identifier()
	}
	b, ct, err := r.small(ctx, "manifest", "manifests/"+id, http.Header{"Accept": {accepted}}, r.s.opts.Limits.Manifest)
	return b, types.MediaType(ct), err
}

// config reads an image's configuration.
func (r *registry) config(ctx context.Context, d descriptor) ([]byte, error) {
	b, _, err := r.small(ctx, "image configuration", "blobs/"+d.Digest, http.Header{}, d.Size)
	if err != nil {
		return nil, err
	}
	return b, matches("image configuration", b, d)
}

// small reads something of at most so many bytes.
func (r *registry) small(ctx context.Context, what, path string, h http.Header, most int64) (b []byte, contentType string, err error) {
	err = r.try(ctx, func() error {
		resp, err := r.get(ctx, path, h.Clone(), http.StatusOK)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		contentType, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
		if b, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); err != nil {
			return err
		}
		if int64(len(b)) > most {
			return invalid("%s: it has more than %d bytes", what, most)
		}
		return nil
	})
	return b, strings.TrimSpace(contentType), err
}
