package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of archives.
const (
	maxMembers = 20_000   // of an archive of images; a root file system has its own bound
	maxHops    = 10       // links from one member to the next
	ratioFrom  = 64 << 20 // bytes out before maxRatio counts
	maxRatio   = 1000     // bytes out of the decompressor for each that went in
)

var errDamaged = invalid("archive: its compression is damaged, or it was cut short")

// spool keeps a stream, uncompressed, in a file that has no name.
func (j *job) spool(ctx context.Context, r io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(j.s.tmp, "archive-")
	if err != nil {
		return nil, fmt.Errorf("keep archive: %w", err)
	}
	err = os.Remove(f.Name())
	if err == nil {
		err = j.fillSpool(ctx, f, r)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.ENOSPC) {
			return nil, sandbox.Errorf(sandbox.Exhausted, "archive: the disk is full").WithHint("carboy image gc")
		}
		return nil, err
	}
	return f, nil
}

func (j *job) fillSpool(ctx context.Context, f *os.File, r io.Reader) error {
	in := &countingReader{r: r, each: func(n int64) { j.rep.report("", PhaseDownload, n, 0) }}
	plain, err := decompress(in)
	if err != nil {
		return err
	}
	defer plain.Close()
	most := j.s.opts.Limits.Archive
	buf := make([]byte, 256<<10)
	for total := int64(0); ; {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		n, err := plain.Read(buf)
		total += int64(n)
		switch {
		case total > most:
			return invalid("archive: it has more than %d bytes", most)
		case total > ratioFrom && total/maxRatio > in.n:
			return invalid("archive: it grows more than %d times when decompressed", maxRatio)
		}
		if _, werr := f.Write(buf[:n]); werr != nil {
			return fmt.Errorf("keep archive: %w", werr)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case in.err != nil:
			return fmt.Errorf("read archive: %w", in.err)
		case err != nil:
			return errDamaged
		}
	}
}

func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	magic, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	switch {
	case strings.HasPrefix(string(magic), "\x1f\x8b"):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, errDamaged
		}
		return z, nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
}

// archiveMember is a file of an archive of images, or a link to one.
type archiveMember struct {
	kind      byte
	link      string
	off, size int64
}

// archive is what lies where in a spooled tar.
type archive struct {
	f       io.ReaderAt
	members map[string]archiveMember
	total   int
	bad     error // what an archive of images must not have; a root file system may
}

// scan reads the headers of a tar of size bytes.
func scan(f io.ReaderAt, size int64) (*archive, error) {
	a := &archive{f: f, members: map[string]archiveMember{}}
	sec := io.NewSectionReader(f, 0, size)
	for tr := tar.NewReader(sec); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid("archive: not a tar, or cut short, after %d entries", a.total)
		}
		off, err := sec.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		a.total++
		if err := a.add(h, off); err != nil && a.bad == nil {
			a.bad = err
		}
	}
	if a.total == 0 {
		return nil, invalid("archive: there is nothing in it")
	}
	return a, nil
}

func (a *archive) add(h *tar.Header, off int64) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	old, twice := a.members[name]
	switch {
	case h.Typeflag == tar.TypeDir && (!twice || old.kind == tar.TypeDir):
	case twice:
		return invalid("archive: %s is there twice", term.Escape(short(name)))
	case len(a.members) >= maxMembers && name != "oci-layout" && name != "manifest.json": // they say what it is
		return invalid("archive: more than %d entries", maxMembers)
	case sparse(h):
		return invalid("archive: %s is a sparse file", term.Escape(short(name)))
	}
	a.members[name] = archiveMember{h.Typeflag, h.Linkname, off, h.Size}
	return nil
}

func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// memberName returns the one form of a name within an archive.
func memberName(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", invalid("archive: %s is an absolute name", term.Escape(short(name)))
	case strings.Contains(name, "\x00"):
		return "", invalid("archive: %s has a NUL in its name", term.Escape(short(name)))
	case name == "":
		return "", invalid("archive: an entry has no name")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", invalid("archive: %s has .. in its name", term.Escape(short(name)))
		}
	}
	return path.Clean(name), nil
}

// open returns a file of the archive. Links are followed to other members and
// nowhere else: archives of old have them for layers that images share.
func (a *archive) open(name string) (*io.SectionReader, error) {
	at, err := memberName(name)
	if err != nil {
		return nil, err
	}
	for range maxHops {
		m, ok := a.members[at]
		switch {
		case !ok:
			return nil, invalid("archive: %s is missing", term.Escape(short(at)))
		case m.kind == tar.TypeReg:
			return io.NewSectionReader(a.f, m.off, m.size), nil
		case m.kind == tar.TypeLink:
			at, err = memberName(m.link)
		case m.kind == tar.TypeSymlink:
			at, err = follow(at, m.link)
		default:
			return nil, invalid("archive: %s is not a file", term.Escape(short(at)))
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, invalid("archive: %s leads through more than %d links", term.Escape(short(name)), maxHops)
}

func follow(at, link string) (string, error) {
	to := path.Join(path.Dir(at), link)
	if path.IsAbs(link) || to == ".." || strings.HasPrefix(to, "../") {
		return "", invalid("archive: %s is a link out of the archive", term.Escape(short(at)))
	}
	return to, nil
}

// has reports whether there is an entry of that name.
func (a *archive) has(name string) bool {
	_, ok := a.members[name]
	return ok
}

// read returns the content of a small file.
func (a *archive) read(name string, most int64) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > most {
		return nil, invalid("archive: %s has %d bytes, at most %d", term.Escape(short(name)), r.Size(), most)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	return b, nil
}
