package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// unpacker makes files of a tar stream that came out of a sandbox, so that
// everything in it is hostile. Nothing is made outside of the directory that
// is unpacked to: each step starts at its handle and follows no link. Set-id and
// sticky bits, owners and times are not taken over; devices, fifos and links that
// lead out are left out.
type unpacker struct {
	r       *tar.Reader
	skipped func(name, why string)

	head *tar.Header // the next entry, read already
	root string      // the name of the first entry; all others lie below it
	to   *beneath.Dir
	base string // what to is called on this machine
	name string // what root is called in to, "." for to itself
	safe string // a directory in to that is reached by no link
	dirs []dirMode
}

// dirMode is a mode to be set when a directory is full.
type dirMode struct {
	name string
	mode fs.FileMode
}

// maxDirModes bounds how many directories get a mode of their own; further
// ones get 0755, less the umask.
const maxDirModes = 1 << 20

// maxUnpacked bounds how many entries an archive may have: one that names the
// same directory for ever makes nothing, and has no end.
const maxUnpacked = 16 << 20

// newUnpacker reads the start of an archive. skipped is told what is left out,
// and why.
func newUnpacker(r io.Reader, skipped func(name, why string)) (*unpacker, error) {
	u := &unpacker{r: tar.NewReader(r), skipped: skipped}
	h, err := u.r.Next()
	if err == io.EOF {
		return nil, errors.New("it is empty")
	}
	if err != nil {
		return nil, err
	}
	u.head, u.root = h, path.Clean(h.Name)
	return u, checkEntry(h)
}

// isDir reports whether a directory is in the archive, and not a file alone.
func (u *unpacker) isDir() bool { return u.head.Typeflag == tar.TypeDir }

// unpack makes the copy in the directory to, under the name of name; "." is to
// itself. shown is what to is called in errors.
func (u *unpacker) unpack(ctx context.Context, to *local, shown, name string) (err error) {
	u.to, u.base = to.dir, shown
	if name != "." && u.head.Typeflag == tar.TypeDir {
		// From here on nothing beside the copy can be reached.
		if u.to, err = u.descend(name); err != nil {
			return err
		}
		defer func() { _ = u.to.Close() }() // a directory
		u.base, name = filepath.Join(u.base, name), "."
	}
	u.name = name
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if n > maxUnpacked {
			return fmt.Errorf("read archive: it has more than %d entries", maxUnpacked)
		}
		if err := u.entry(u.head); err != nil {
			return err
		}
		if u.head, err = u.r.Next(); err == io.EOF {
			return u.finishDirs()
		} else if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
	}
}

// descend makes the directory name of to, if it is not there, and opens it.
func (u *unpacker) descend(name string) (*beneath.Dir, error) {
	if err := u.to.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory %s on this machine: %w", u.show(name), usage.Pathless(err))
	}
	sub, err := u.to.OpenDir(name)
	if err != nil {
		return nil, fmt.Errorf("open directory %s on this machine: %w", u.show(name), usage.Pathless(err))
	}
	return sub, nil
}

// Bounds of one name.
const (
	maxEntryName  = 4095 // bytes
	maxEntryDepth = 512  // directories within each other
)

// checkEntry refuses what no honest guest sends.
func checkEntry(h *tar.Header) error {
	if len(h.Name) > maxEntryName || len(h.Linkname) > maxEntryName || strings.Count(h.Name, "/") > maxEntryDepth {
		return fmt.Errorf("it has an entry with too long a name: %.64q…", h.Name)
	}
	if h.Name == "" || strings.ContainsRune(h.Name, 0) || strings.ContainsRune(h.Linkname, 0) {
		return fmt.Errorf("it has an entry with a bad name: %q", h.Name)
	}
	if h.Typeflag == tar.TypeGNUSparse {
		return fmt.Errorf("it has an entry of an unknown type: %q", h.Name)
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return fmt.Errorf("it has an entry of an unknown type: %q", h.Name)
		}
	}
	return nil
}

// target turns the name of an entry into one in to.
func (u *unpacker) target(name string) (string, error) {
	rel := path.Clean(name)
	if rel != u.root && u.root != "." {
		var ok bool
		if rel, ok = strings.CutPrefix(rel, u.root+"/"); !ok {
			return "", fmt.Errorf("the archive has %q, which is not below %q", name, u.root)
		}
	} else if rel == u.root {
		rel = "."
	}
	to := path.Join(u.name, rel)
	if !filepath.IsLocal(to) {
		return "", fmt.Errorf("the archive has %q, which leads out of it", name)
	}
	return to, nil
}

func (u *unpacker) entry(h *tar.Header) error {
	if err := checkEntry(h); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	to, err := u.target(h.Name)
	if err != nil {
		return err
	}
	if weak.On(weak.LinksFollowed) && (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir) {
		return u.byName(to, h)
	}
	if err := u.parents(to); err != nil {
		return fmt.Errorf("write %s on this machine: %w", u.show(to), usage.Pathless(err))
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.dir(to, mode)
	case tar.TypeReg:
		err = u.file(to, mode)
	case tar.TypeSymlink:
		err = u.symlink(to, h)
	case tar.TypeLink:
		err = u.link(to, h)
	default:
		u.skipped(h.Name, "it is neither a file, a directory nor a link")
	}
	if err != nil {
		return fmt.Errorf("write %s on this machine: %w", u.show(to), usage.Pathless(err))
	}
	return nil
}

// show is a place of the copy as its user would call it, for errors.
func (u *unpacker) show(name string) string { return shell.Word(filepath.Join(u.base, name)) }

// byName writes where a name leads, links and all: what the rest of an
// Unpacker is there to prevent.
func (u *unpacker) byName(to string, h *tar.Header) error {
	at := filepath.Join(u.to.Path(), to)
	if h.Typeflag == tar.TypeDir {
		return os.MkdirAll(at, 0o755)
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.r)
	return errors.Join(err, f.Close())
}

// parents refuses a place whose parents are not all directories of the copy. No
// link is followed to it either way, but where a link that is made there leads
// could not be told from the text of its name.
func (u *unpacker) parents(to string) error {
	parent := path.Dir(to)
	// What is above a safe directory is safe as well, and stays so: no
	// directory is ever replaced.
	for dir := parent; dir != "." && dir != u.safe && !strings.HasPrefix(u.safe, dir+"/"); dir = path.Dir(dir) {
		fi, err := u.to.Lstat(dir)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("%s is not a directory", u.show(dir))
		}
	}
	u.safe = parent
	return nil
}

func (u *unpacker) dir(to string, mode fs.FileMode) error {
	if to == "." {
		return nil
	}
	err := u.to.Mkdir(to, 0o755)
	if errors.Is(err, fs.ErrExist) {
		fi, err := u.to.Lstat(to)
		if err == nil && !fi.IsDir() {
			err = errors.New("it is there already, and is no directory")
		}
		return err
	}
	if err == nil && mode != 0o755 && len(u.dirs) < maxDirModes {
		u.dirs = append(u.dirs, dirMode{to, mode})
	}
	return err
}

// finishDirs sets the modes of directories, the innermost first, so that one
// that may not be written to can be filled before.
func (u *unpacker) finishDirs() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		fi, err := u.to.Lstat(d.name)
		if err != nil || !fi.IsDir() {
			continue // a later entry took its place
		}
		// Only what the umask would leave: 0755 has been cut by it.
		if err := u.to.Chmod(d.name, uint32(d.mode&(fi.Mode().Perm()|0o700))); err != nil {
			return fmt.Errorf("set mode of %s on this machine: %w", u.show(d.name), usage.Pathless(err))
		}
	}
	return nil
}

// file writes a file whole beside its place, and then puts it there. It is one of
// a user's, and of many: as with cp, no disk is waited for.
func (u *unpacker) file(to string, mode fs.FileMode) (err error) {
	if err := u.free(to); err != nil {
		return err
	}
	tmp := path.Join(path.Dir(to), ".carboy-"+rand.Text())
	f, err := u.to.Create(tmp, uint32(mode))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = u.to.Unlink(tmp) // best effort: the first error is the one to tell
		}
	}()
	_, err = io.Copy(&holeWriter{f: f}, u.r)
	if err == nil {
		var end int64
		if end, err = f.Seek(0, io.SeekCurrent); err == nil {
			err = f.Truncate(end)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.to.Rename(tmp, to, 0)
}

// free refuses a place where a directory is, which would be in the way.
func (u *unpacker) free(to string) error {
	fi, err := u.to.Lstat(to)
	if err == nil && fi.IsDir() {
		return errors.New("a directory is there")
	}
	return nil
}

// symlink makes a link that stays in the copy.
func (u *unpacker) symlink(to string, h *tar.Header) error {
	if !staysIn(to, h.Linkname) && !weak.On(weak.LinksOutMade) {
		u.skipped(h.Name, "it is a link that leads out, to "+h.Linkname)
		return nil
	}
	if err := u.vacate(to); err != nil {
		return err
	}
	return u.to.Symlink(h.Linkname, to)
}

// staysIn reports whether a link at the path to stays below the top. Its own
// directory is no link, so steps up at its beginning are what they seem; after
// a name, which may be a link to somewhere higher, they are not.
func staysIn(to, target string) bool {
	if target == "" || to == "." || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(to), target)) {
		return false
	}
	named := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && named {
			return false
		}
		named = named || part != ".." && part != "." && part != ""
	}
	return true
}

// link makes a further name for a file of the copy.
func (u *unpacker) link(to string, h *tar.Header) error {
	from, err := u.target(h.Linkname)
	if err != nil {
		return err
	}
	if from == to {
		return nil
	}
	fi, err := u.to.Lstat(from)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return errors.New("it is a further name of what is no file")
	}
	if err := u.vacate(to); err != nil {
		return err
	}
	return u.to.Link(from, to)
}

// vacate removes a file or link from the place to.
func (u *unpacker) vacate(to string) error {
	if err := u.free(to); err != nil {
		return err
	}
	if err := u.to.Unlink(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// holeWriter leaves out blocks of zeros, so that a sparse file stays one.
type holeWriter struct{ f *os.File }

const holeBlock = 32 << 10

var zeros [holeBlock]byte

// Write writes p, block by block.
func (w *holeWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		b := p[:min(len(p), holeBlock)]
		var err error
		if len(b) == holeBlock && bytes.Equal(b, zeros[:]) {
			_, err = w.f.Seek(holeBlock, io.SeekCurrent)
		} else {
			_, err = w.f.Write(b)
		}
		if err != nil {
			return n, err
		}
		n += len(b)
		p = p[len(b):]
	}
	return n, nil
}
