package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxCuts bounds how often a blob's connection may break, even when each
// brought something.
const maxCuts = 50

// blobFile is a blob that is being fetched: what is there of it, and the hash
// of that.
type blobFile struct {
	f    *os.File
	hash hash.Hash
	n    int64
	werr error // of the last write
}

// openBlob opens a blob that may be partly there.
func openBlob(path string) (*blobFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open partial download: %w", err)
	}
	b := &blobFile{f: f, hash: sha256.New()}
	if b.n, err = io.Copy(b.hash, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("read partial download: %w", err)
	}
	return b, nil
}

// Write appends.
func (b *blobFile) Write(p []byte) (int, error) {
	n, err := b.f.WriteAt(p, b.n)
	b.hash.Write(p[:n])
	b.n += int64(n)
	b.werr = err
	return n, err
}

// restart forgets what is there.
func (b *blobFile) restart() error {
	b.hash.Reset()
	b.n = 0
	return b.f.Truncate(0)
}

func (b *blobFile) digest() string { return "sha256:" + hex.EncodeToString(b.hash.Sum(nil)) }

// download fetches a blob into the file at path, going on where an earlier
// attempt ended, and returns the file, whole and checked, at its start.
func (r *registry) download(ctx context.Context, d descriptor, path string, report func(done int64)) (*os.File, error) {
	b, err := openBlob(path)
	if err != nil {
		return nil, err
	}
	if err := r.fill(ctx, b, d, report); err != nil {
		if sandbox.KindOf(err) == sandbox.Invalid {
			err = errors.Join(err, os.Remove(path))
		}
		b.f.Close()
		return nil, err
	}
	if _, err := b.f.Seek(0, io.SeekStart); err != nil {
		b.f.Close()
		return nil, fmt.Errorf("read download: %w", err)
	}
	return b.f, nil
}

// fill fetches what is missing of a blob. Where the parts together are not
// what they should be, it starts over once: the earlier part may be at fault.
func (r *registry) fill(ctx context.Context, b *blobFile, d descriptor, report func(done int64)) error {
	older := b.n > 0
	failures := 0
	for cuts := 0; ; {
		if b.n == d.Size && b.digest() == d.Digest {
			return nil
		}
		if b.n >= d.Size {
			if !older {
				return invalid("layer %s: what the registry sent has the digest %s", shorten(d.Digest), b.digest())
			}
			older = false
			if err := b.restart(); err != nil {
				return fmt.Errorf("write download: %w", err)
			}
		}
		had := b.n
		err := r.fetch(ctx, b, d, report)
		switch {
		case err == nil:
			continue
		case b.werr != nil && errors.Is(b.werr, unix.ENOSPC):
			return sandbox.Errorf(sandbox.Exhausted, "layer %s: the disk is full", shorten(d.Digest)).WithHint("carboy image gc")
		case b.werr != nil:
			return fmt.Errorf("write download: %w", b.werr)
		}
		if b.n > had {
			failures = 0
		}
		failures++
		if cuts++; cuts == maxCuts {
			return r.clean(err)
		}
		if err := r.pause(ctx, err, failures); err != nil {
			return err
		}
	}
}

// fetch makes one request for the rest of a blob.
func (r *registry) fetch(ctx context.Context, b *blobFile, d descriptor, report func(done int64)) error {
	h := http.Header{}
	if b.n > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", b.n, d.Size-1))
	}
	resp, err := r.get(ctx, "blobs/"+d.Digest, h, http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	from := strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", b.n))
	if b.n > 0 && (resp.StatusCode != http.StatusPartialContent || !from) {
		if err := b.restart(); err != nil { // it can't, or won't, go on from there
			b.werr = err
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return nil
		}
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return r.refusal(resp.StatusCode)
	}
	if l := resp.ContentLength; l >= 0 && l != d.Size-b.n {
		return invalid("layer %s: the registry sends %d bytes, and %d are missing", shorten(d.Digest), l, d.Size-b.n)
	}
	body := &countingReader{r: resp.Body, n: b.n, each: report}
	if _, err := io.CopyN(b, body, d.Size-b.n); err != nil {
		return err // io.EOF too: the connection was cut where no length was given
	}
	if n, _ := resp.Body.Read(make([]byte, 1)); n > 0 {
		return invalid("layer %s: the registry sends more than %d bytes", shorten(d.Digest), d.Size)
	}
	return nil
}

// partialPath is where a layer's blob is fetched to. Owners share none: what
// one has of it is not the other's.
func (s *Store) partialPath(owner string, src source) string {
	return filepath.Join(s.dir, "partial", strings.TrimPrefix(src.blob, "sha256:")+"-"+src.key(owner)[:16])
}
