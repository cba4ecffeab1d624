package skill

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// limits bound what is taken in from outside.
type limits struct {
	packed  int64 // bytes of an archive
	entries int
	entry   int64 // bytes of one file
	total   int64 // bytes of all files
	ratio   int64 // bytes of a file for one in the archive
}

var zipLimits = limits{packed: 20 << 20, entries: 512, entry: 16 << 20, total: 64 << 20, ratio: 100}

const maxPart = 255 // bytes of one name of a path

// item is one entry of an archive, whose name was made a path within a
// package.
type item struct {
	rel  string
	dir  bool
	exec bool
	size int64
	zip  *zip.File
}

// names keeps entries of an archive apart, also where a file system does not
// tell small letters from capital ones.
type names map[string]named

type named struct {
	spelled string
	dir     bool
	listed  bool // as an entry of its own, not by what is below it
}

// add refuses an entry that is there, and what has a file above it.
func (n names) add(rel string, dir bool) error {
	if err := n.put(named{rel, dir, true}); err != nil {
		return err
	}
	for above := path.Dir(rel); above != "."; above = path.Dir(above) {
		if err := n.put(named{above, true, false}); err != nil {
			return err
		}
	}
	return nil
}

func (n names) put(e named) error {
	key := fold(e.spelled)
	was, ok := n[key]
	if ok && (was.spelled != e.spelled || !was.dir || !e.dir || was.listed && e.listed) {
		return invalid("Archive contains a duplicate path: %s", describe(e.spelled))
	}
	e.listed = e.listed || was.listed
	n[key] = e
	return nil
}

// fold is a name with small and capital letters made the same.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}

// safePath makes an archive's name a path within a package, or refuses it.
func safePath(name string) (string, error) {
	slashed := strings.ReplaceAll(name, `\`, "/")
	unsafe := invalid("Archive contains an unsafe path: %s", describe(name))
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", invalid("Archive contains an unsafe empty or NUL path")
	case !utf8.ValidString(name), len(name) > maxPath, slashed[0] == '/',
		strings.ContainsFunc(name, unicode.IsControl):
		return "", unsafe
	}
	parts := strings.Split(slashed, "/")
	if len(parts) > maxTreeDepth || len(parts[0]) >= 2 && parts[0][1] == ':' {
		return "", unsafe
	}
	for _, p := range parts {
		if p == ".." || len(p) > maxPart {
			return "", unsafe
		}
	}
	clean := path.Clean(slashed)
	if clean == "." {
		return "", unsafe
	}
	return clean, nil
}

// readZip looks at all that an archive says of itself, before anything of it
// is unpacked.
func readZip(data []byte, lim limits) ([]item, error) {
	if len(data) == 0 {
		return nil, invalid("Uploaded file is empty")
	}
	if int64(len(data)) > lim.packed {
		return nil, invalid("Uploaded archive exceeds the compressed size limit (%d bytes)", lim.packed)
	}
	if !endsWhole(data) {
		return nil, invalid("Uploaded file must be a valid .zip archive")
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, zip.ErrInsecurePath) {
		err = nil // each path is looked at below
	}
	if err != nil {
		return nil, invalid("Uploaded file must be a valid .zip archive")
	}
	if len(r.File) == 0 {
		return nil, invalid("Uploaded archive is empty")
	}
	if len(r.File) > lim.entries {
		return nil, invalid("Archive contains too many entries (maximum %d)", lim.entries)
	}
	var items []item
	var packed, total int64
	seen := names{}
	for _, f := range r.File {
		it, err := zipItem(f, lim)
		if err != nil {
			return nil, err
		}
		if err := seen.add(it.rel, it.dir); err != nil {
			return nil, err
		}
		packed += int64(f.CompressedSize64) //nolint:gosec // zipItem bounds it
		total += it.size
		if total > lim.total {
			return nil, invalid("Archive exceeds the total uncompressed size limit (%d bytes)", lim.total)
		}
		items = append(items, it)
	}
	if total > packed*lim.ratio {
		return nil, invalid("Archive exceeds the aggregate compression ratio limit (%d)", lim.ratio)
	}
	return items, apart(items)
}

// zipItem looks at one entry.
func zipItem(f *zip.File, lim limits) (item, error) {
	const encrypted = 0x1 | 0x40 | 0x2000
	rel, err := safePath(f.Name)
	if err != nil {
		return item{}, err
	}
	name := describe(f.Name)
	mode := f.ExternalAttrs >> 16
	it := item{rel: rel, exec: mode&0o111 != 0, zip: f}
	it.dir = strings.HasSuffix(f.Name, "/") || strings.HasSuffix(f.Name, `\`) || mode&unix.S_IFMT == unix.S_IFDIR
	switch kind := mode & unix.S_IFMT; {
	case kind == unix.S_IFLNK:
		return item{}, invalid("Archive contains a symbolic link: %s", name)
	case kind != 0 && kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return item{}, invalid("Archive contains a non-regular entry: %s", name)
	case f.Flags&encrypted != 0:
		return item{}, invalid("Archive contains an encrypted entry: %s", name)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return item{}, invalid("Archive entry is compressed in a way that is not supported: %s", name)
	case it.dir && (f.UncompressedSize64 != 0 || f.CompressedSize64 > 2): // deflate writes two bytes for nothing
		return item{}, invalid("Archive directory has unexpected content: %s", name)
	case f.UncompressedSize64 > uint64(lim.entry):
		return item{}, invalid("Archive entry exceeds the uncompressed size limit: %s", name)
	case f.CompressedSize64 > uint64(lim.packed):
		return item{}, invalid("Archive exceeds the compressed size limit")
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		return item{}, invalid("Archive contains invalid size metadata: %s", name)
	}
	it.size = int64(f.UncompressedSize64)
	if it.size > int64(f.CompressedSize64)*lim.ratio {
		return item{}, invalid("Archive entry exceeds the compression ratio limit: %s", name)
	}
	return it, nil
}

// apart refuses entries that share bytes, by which a small archive says a
// lot.
func apart(items []item) error {
	type span struct{ from, to int64 }
	var spans []span
	for _, it := range items {
		at, err := it.zip.DataOffset()
		if err != nil {
			return invalid("Uploaded file must be a valid .zip archive")
		}
		const header = 30
		spans = append(spans, span{at - header, at + int64(it.zip.CompressedSize64)})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			return invalid("Archive contains entries that overlap")
		}
	}
	return nil
}

// endsWhole reports whether the record that ends a zip is the last there is,
// but for its own comment.
func endsWhole(data []byte) bool {
	const size, magic = 22, "PK\x05\x06"
	for at := len(data) - size; at >= 0 && at >= len(data)-size-0xffff; at-- {
		if string(data[at:at+4]) == magic {
			// Readers differ in which of several records they take: it has to be
			// the last of all.
			return at+size+int(binary.LittleEndian.Uint16(data[at+size-2:])) == len(data)
		}
	}
	return false
}

// unzip writes an archive's entries into the empty directory to.
func unzip(ctx context.Context, items []item, to *os.Root) error {
	for _, it := range items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if it.dir {
			if err := to.MkdirAll(it.rel, 0o755); err != nil {
				return err
			}
			continue
		}
		r, err := it.zip.Open()
		if err != nil {
			return invalid("Uploaded file must be a valid .zip archive: %s can't be read", describe(it.rel))
		}
		err = unpack(to, it, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// unpack writes one file, which has to be as long as was said.
func unpack(to *os.Root, it item, r io.Reader) error {
	if above := path.Dir(it.rel); above != "." {
		if err := to.MkdirAll(above, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o644)
	if it.exec {
		mode = 0o755
	}
	f, err := to.OpenFile(it.rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if errors.Is(err, fs.ErrExist) {
		return invalid("Archive contains a duplicate path: %s", describe(it.rel))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	src := &source{r: r}
	n, err := io.Copy(f, io.LimitReader(src, it.size+1))
	switch {
	case src.err != nil:
		if _, ok := errors.AsType[*sandbox.Error](src.err); ok {
			return src.err
		}
		return invalid("Archive entry can't be read: %s", describe(it.rel))
	case err != nil:
		return err
	case n != it.size:
		return invalid("Archive entry size changed while extracting: %s", describe(it.rel))
	}
	return f.Chmod(mode)
}

// source tells a reader's errors from a writer's.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
