package skill

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Limits of a package that is copied or brought to a sandbox.
const (
	maxTreeFiles = 10_000
	maxTreeBytes = 256 << 20
	maxTreeDepth = 64
)

// Bounds are what is read of a directory from which a package may be taken: as
// many entries, and as many bytes of one file and of all, as an uploaded archive
// may have; and the names of what no package has.
func Bounds() (entries int, entry, total int64, except []string) {
	return zipLimits.entries, zipLimits.entry, zipLimits.total, slices.Clone(leftOut)
}

// leftOut are entries that are made anew wherever they are needed: they are
// neither brought to a sandbox nor taken back, at no depth.
var leftOut = []string{".git", ".langbot", ".venv", "__pycache__", "node_modules"}

// node is a file or a directory of a package.
type node struct {
	rel  string
	dir  bool
	exec bool
	size int64
	sig  [4]int64 // changes whenever the file does: inode, ctime, mtime
}

// skipped is what of a package is no part of what is brought.
type skipped struct {
	caches  []string // of leftOut
	strange []string // links and special files
}

// walk lists a package, in the order of its paths, within the limits above.
func walk(ctx context.Context, pkg *os.Root) ([]node, skipped, error) {
	w := &walker{ctx: ctx, pkg: pkg}
	err := w.dir(".", 0)
	return w.nodes, w.skipped, err
}

type walker struct {
	ctx     context.Context // of the one call that this is for
	pkg     *os.Root
	nodes   []node
	bytes   int64
	skipped skipped
}

func (w *walker) dir(rel string, depth int) error {
	if depth > maxTreeDepth {
		return invalid("the package has more than %d directories within each other: %s", maxTreeDepth, describe(rel))
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	entries, err := readDir(w.pkg, rel)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.entry(path.Join(rel, e.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(rel string, depth int) error {
	if slices.Contains(leftOut, path.Base(rel)) {
		w.skipped.caches = append(w.skipped.caches, rel)
		return nil
	}
	st, err := w.pkg.Lstat(rel)
	if missing(err) {
		return nil // it is gone meanwhile
	}
	if err != nil {
		return err
	}
	if !st.IsDir() && !st.Mode().IsRegular() {
		w.skipped.strange = append(w.skipped.strange, rel)
		return nil
	}
	n := node{rel: rel, dir: st.IsDir()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		n.sig = [4]int64{int64(sys.Ino), sys.Ctim.Nano(), sys.Mtim.Nano()}
	}
	if !n.dir {
		n.exec, n.size = plainMode(st.Mode()) == 0o755, st.Size()
	}
	w.nodes = append(w.nodes, n)
	w.bytes += n.size
	if len(w.nodes) > maxTreeFiles || w.bytes > maxTreeBytes {
		return sandbox.Errorf(sandbox.Exhausted, "the package has more than %d files or %d bytes", maxTreeFiles, maxTreeBytes)
	}
	if n.dir {
		return w.dir(rel, depth+1)
	}
	return nil
}

// sums remembers the content of packages by what their files look like from
// outside, so that what did not change is not read again.
type sums struct {
	mu   sync.Mutex
	last map[string]sum
}

type sum struct{ look, content string }

const maxSums = 10_000 // packages

func (c *sums) get(key, look string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.last[key]
	return s.content, ok && s.look == look
}

func (c *sums) put(key, look, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || len(c.last) >= maxSums {
		c.last = make(map[string]sum)
	}
	c.last[key] = sum{look, content}
}

// content returns a hash of what files and directories a package has.
func (s *Store) content(ctx context.Context, pkg *os.Root, key string) (string, []node, skipped, error) {
	nodes, skip, err := walk(ctx, pkg)
	if err != nil {
		return "", nil, skip, err
	}
	look := looks(nodes)
	key = s.ns + "\x00" + key
	if c, ok := s.keep.sums.get(key, look); ok {
		return c, nodes, skip, nil
	}
	d := newDigest()
	for _, n := range nodes {
		if err := d.node(ctx, pkg, n); err != nil {
			return "", nil, skip, err
		}
	}
	c := d.sum()
	s.keep.sums.put(key, look, c)
	return c, nodes, skip, nil
}

func looks(nodes []node) string {
	h := sha256.New()
	for _, n := range nodes {
		fmt.Fprintf(h, "%q %v %v %d %v\n", n.rel, n.dir, n.exec, n.size, n.sig)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digest is the hash of a package: of its paths, in order, of which files
// can be executed, and of what they hold.
type digest struct{ h hash.Hash }

func newDigest() *digest { return &digest{sha256.New()} }

func (d *digest) sum() string { return hex.EncodeToString(d.h.Sum(nil)) }

func (d *digest) node(ctx context.Context, pkg *os.Root, n node) error {
	if n.dir {
		d.add(n, nil)
		return nil
	}
	in := sha256.New()
	if err := readNode(ctx, pkg, n, in); err != nil {
		return err
	}
	d.add(n, in.Sum(nil))
	return nil
}

func (d *digest) add(n node, content []byte) {
	kind := byte('f')
	switch {
	case n.dir:
		kind = 'd'
	case n.exec:
		kind = 'x'
	}
	d.h.Write([]byte{kind})
	d.h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(n.rel))))
	io.WriteString(d.h, n.rel) //nolint:errcheck // a hash takes all
	d.h.Write(content)
}

// readNode copies a file of exactly the size that walk saw.
func readNode(ctx context.Context, pkg *os.Root, n node, w io.Writer) error {
	f, err := pkg.OpenFile(n.rel, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return changed(n.rel)
	}
	got, err := io.Copy(w, io.LimitReader(f, n.size))
	if err != nil {
		return err
	}
	if got != n.size {
		return changed(n.rel)
	}
	return ctx.Err()
}

func changed(rel string) error {
	return sandbox.Errorf(sandbox.Conflict, "the package changed while it was read: %s", describe(rel)).WithHint("try again")
}

// copyTree copies a package's files and directories into the empty directory
// to. Links and special files are refused.
func copyTree(ctx context.Context, from, to *os.Root) error {
	w := &walker{ctx: ctx, pkg: from}
	if err := w.dir(".", 0); err != nil {
		return err
	}
	if len(w.skipped.strange) > 0 {
		return invalid("the package has links or special files, which a skill can't: %s",
			candidates(w.skipped.strange, func(s string) string { return s }))
	}
	for _, n := range w.nodes {
		if n.dir {
			if err := to.Mkdir(n.rel, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := copyFile(ctx, from, to, n); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to *os.Root, n node) error {
	mode := fs.FileMode(0o644)
	if n.exec {
		mode = 0o755
	}
	f, err := to.OpenFile(n.rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	err = readNode(ctx, from, n, f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
