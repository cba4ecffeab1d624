package skill

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// guestLimits bounds what a sandbox made of a package: as an archive that is
// uploaded, or by what the store has of it already, where that is more.
func guestLimits(stored []node) limits {
	lim := zipLimits
	var total int64
	for _, n := range stored {
		total += n.size
		lim.entry = max(lim.entry, n.size)
	}
	lim.entries = max(lim.entries, len(stored))
	lim.total = max(lim.total, total)
	return lim
}

// raw is how long the archive of what lim allows can be.
func (l limits) raw() int64 { return l.total + int64(l.entries+16)*4096 }

// readTar reads a guest's archive of a package, the directory top, to its
// end, and hands each file and directory to visit. It refuses whatever is
// neither, and leaves out what is in leftOut.
func readTar(ctx context.Context, r io.Reader, top string, lim limits, visit func(it item, content io.Reader) error) error {
	in := &source{r: &bounded{r: r, left: lim.raw()}}
	tr := tar.NewReader(in)
	seen := names{}
	entries, total := 0, int64(0)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return in.or(invalid("Archive of the sandbox can't be read"))
		}
		if entries++; entries > lim.entries {
			return invalid("Archive contains too many entries (maximum %d)", lim.entries)
		}
		it, skip, err := tarItem(h, top, lim)
		if err != nil {
			return err
		}
		if total += it.size; total > lim.total {
			return invalid("Archive exceeds the total uncompressed size limit (%d bytes)", lim.total)
		}
		if skip {
			continue
		}
		if err := seen.add(it.rel, it.dir); err != nil {
			return err
		}
		if err := visit(it, tr); err != nil {
			return in.or(err)
		}
	}
}

// or is err, unless reading failed for a reason of its own.
func (s *source) or(err error) error {
	if s.err != nil && !errors.Is(s.err, io.ErrUnexpectedEOF) {
		return s.err
	}
	return err
}

// bounded is a reader that fails after so many bytes.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, invalid("Archive exceeds the total uncompressed size limit")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// tarItem looks at one entry.
func tarItem(h *tar.Header, top string, lim limits) (it item, skip bool, err error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return item{}, true, nil
	}
	rel, err := safePath(h.Name)
	if err != nil {
		return item{}, false, err
	}
	name := describe(h.Name)
	first, rest, below := strings.Cut(rel, "/")
	if first != top || strings.Contains(h.Name, `\`) {
		return item{}, false, invalid("Archive contains an unsafe path: %s", name)
	}
	it = item{rel: rest, dir: h.Typeflag == tar.TypeDir, exec: h.Mode&0o111 != 0}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return item{}, false, invalid("Archive contains a sparse entry: %s", name)
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return it, !below || cached(rest), nil
	case tar.TypeReg:
	case tar.TypeSymlink:
		return item{}, cached(rest), orNil(!cached(rest), "Archive contains a symbolic link: %s", name)
	case tar.TypeLink:
		return item{}, cached(rest), orNil(!cached(rest), "Archive contains a hard link: %s", name)
	default:
		return item{}, cached(rest), orNil(!cached(rest), "Archive contains a non-regular entry: %s", name)
	}
	if !below {
		return item{}, false, invalid("Archive contains an unsafe path: %s", name)
	}
	if h.Size < 0 || h.Size > lim.entry {
		return item{}, false, invalid("Archive entry exceeds the uncompressed size limit: %s", name)
	}
	it.size = h.Size
	return it, cached(rest), nil
}

func orNil(is bool, format string, args ...any) error {
	if is {
		return invalid(format, args...)
	}
	return nil
}

// cached reports whether a path is in leftOut, or below one that is.
func cached(rel string) bool {
	return slices.ContainsFunc(strings.Split(rel, "/"), func(p string) bool { return slices.Contains(leftOut, p) })
}

// sumTar reads a guest's archive to its end and returns its content, as
// Store.content has it, and how many files it has.
func sumTar(ctx context.Context, r io.Reader, top string, lim limits) (string, error) {
	type entry struct {
		n       node
		content []byte
	}
	var all []entry
	err := readTar(ctx, r, top, lim, func(it item, content io.Reader) error {
		e := entry{n: node{rel: it.rel, dir: it.dir, exec: it.exec && !it.dir}}
		if !it.dir {
			h := sha256.New()
			if _, err := io.Copy(h, content); err != nil {
				return invalid("Archive of the sandbox can't be read")
			}
			e.content = h.Sum(nil)
		}
		all = append(all, e)
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b entry) int {
		return slices.Compare(strings.Split(a.n.rel, "/"), strings.Split(b.n.rel, "/"))
	})
	d := newDigest()
	for _, e := range all {
		d.add(e.n, e.content)
	}
	return d.sum(), nil
}

// writeGuestTar writes a guest's archive into the empty directory to.
func writeGuestTar(ctx context.Context, r io.Reader, top string, lim limits, to *os.Root) error {
	return readTar(ctx, r, top, lim, func(it item, content io.Reader) error {
		if it.dir {
			return to.MkdirAll(it.rel, 0o755)
		}
		return unpack(to, it, content)
	})
}

// writeTar writes the archive of a package for a guest.
func writeTar(ctx context.Context, pkg *os.Root, nodes []node, w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, n := range nodes {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: n.rel, Mode: 0o644, Size: n.size, ModTime: n.modified(), Format: tar.FormatPAX}
		switch {
		case n.dir:
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, n.rel+"/", 0o755
		case n.exec:
			h.Mode = 0o755
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if n.dir {
			continue
		}
		if err := readNode(ctx, pkg, n, tw); err != nil {
			return err
		}
	}
	return tw.Close()
}

// carry gives the new directory of a package what the old one has and no
// sandbox is shown: links to the same files.
func carry(dir *os.Root, old, fresh string, skip skipped) error {
	for _, rel := range append(slices.Clone(skip.caches), skip.strange...) {
		to := path.Join(fresh, rel)
		if st, err := dir.Lstat(path.Dir(to)); err != nil || !st.IsDir() {
			continue // the sandbox removed the directory that it was in
		}
		if _, err := dir.Lstat(to); err == nil {
			continue // it has something else there
		}
		if err := linkTree(dir, path.Join(old, rel), to, 0); err != nil {
			return err
		}
	}
	return nil
}

func linkTree(dir *os.Root, from, to string, depth int) error {
	st, err := dir.Lstat(from)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return dir.Link(from, to)
	}
	if depth > maxTreeDepth {
		return invalid("the package has more than %d directories within each other: %s", maxTreeDepth, describe(from))
	}
	if err := dir.Mkdir(to, st.Mode().Perm()|0o700); err != nil {
		return err
	}
	f, err := dir.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(1024)
		for _, e := range entries {
			if err := linkTree(dir, path.Join(from, e.Name()), path.Join(to, e.Name()), depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
