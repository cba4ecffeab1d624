package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// PopulateOptions tune Populate.
type PopulateOptions struct {
	UID, GID int       // who owns the copy
	Manifest io.Writer // gets the manifest that Copy reads; must be given
	// ReadAs is with whose rights the source is read. Nil means the
	// process's own: right only where these are the caller's already.
	ReadAs *Identity
	// Digests records each file's digest, so that a copy whose change times
	// were lost (moved to another disk) still tells what changed in it.
	Digests bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Progress, where it is not nil, is told now and then how much was copied.
	Progress func(sandbox.Copied)
}

// PopulateWith is Populate with the manifest as a file of a directory. It gets its name last: it says that the copy is whole.
func PopulateWith(ctx context.Context, src, dst *os.File, at *beneath.Dir, manifest string, opts PopulateOptions) (Populated, error) {
	f, err := durable.Create(at, durable.Options{})
	if err != nil {
		return Populated{}, err
	}
	defer f.Discard()
	w := bufio.NewWriterSize(f, 1<<16)
	opts.Manifest = w
	done, err := Populate(ctx, src, dst, opts)
	if err := errors.Join(err, w.Flush()); err != nil {
		return done, err
	}
	return done, f.Commit(at, manifest)
}

// progressEvery is how often Progress is called at most.
const progressEvery = 250 * time.Millisecond

// Populated says what Populate did.
type Populated struct {
	Since time.Time // when it began
	Files int64     // regular files, symlinks and directories
	Bytes int64     // of data
	// Skipped names what was not copied, and why: at most maxSkipped of them,
	// safe to print. More counts the rest.
	Skipped []string
	More    int64
}

const maxSkipped = 100

// Populate copies what is in directory src into the empty directory dst: files
// with their holes, directories and symlinks, with their modes (without set-id
// bits) and modification times, owned by opts.UID and opts.GID. Special files,
// other mounts and what may not be read are skipped and named. It holds one
// directory's names and one buffer in memory.
//
// After an error dst holds a part of the tree and is of no use.
func Populate(ctx context.Context, src, dst *os.File, opts PopulateOptions) (Populated, error) {
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	p := &populator{ctx: ctx, opts: opts, now: now, done: Populated{Since: now()}, dig: newDigester(), buf: make([]byte, 256<<10)}
	p.told = p.done.Since
	p.manifest = newManifestWriter(opts.Manifest, p.done.Since)
	st, err := statFile(src)
	if err != nil {
		return p.done, fmt.Errorf("copy workspace: %w", err)
	}
	p.dev = st.Dev
	err = runAs(opts.ReadAs, func(as *actor) error {
		p.as = as
		return p.tree(src, dst)
	})
	if err == nil {
		err = p.manifest.close()
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return p.done, &sandbox.Error{
			Kind: sandbox.Exhausted, Msg: "copy workspace: no room left on the sandbox's disk",
			Hint: "give it more with --disk", Err: err,
		}
	}
	if err != nil {
		return p.done, fmt.Errorf("copy workspace: %w", err)
	}
	return p.done, nil
}

type populator struct {
	ctx      context.Context
	opts     PopulateOptions
	as       *actor
	dev      uint64
	now      func() time.Time
	done     Populated
	told     time.Time // when Progress was called
	manifest *manifestWriter
	dig      *digester
	buf      []byte
}

// progress tells how much was copied, beyond what is done, unless that was told just now.
func (p *populator) progress(more int64) {
	if p.opts.Progress == nil {
		return
	}
	if now := p.now(); now.Sub(p.told) >= progressEvery {
		p.told = now
		p.opts.Progress(sandbox.Copied{Files: p.done.Files, Bytes: p.done.Bytes + more})
	}
}

func (p *populator) skip(rel, why string) {
	if len(p.done.Skipped) == maxSkipped {
		p.done.More++
		return
	}
	p.done.Skipped = append(p.done.Skipped, term.Escape(rel)+": "+why)
}

func (p *populator) tree(src, dst *os.File) error {
	var d *os.File
	err := p.as.do(func() (err error) { d, err = openDirAt(src, "."); return err })
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer d.Close()
	return p.dir(d, dst, ".", 0)
}

func (p *populator) dir(src, dst *os.File, rel string, depth int) error {
	var names []string
	err := p.as.do(func() (err error) { names, err = listDir(src); return err })
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(rel), err)
	}
	for _, name := range names {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		path := joinPath(rel, name)
		if err := p.entry(src, dst, name, path, depth+1); err != nil {
			return fmt.Errorf("%s: %w", term.Escape(path), err)
		}
	}
	return nil
}

// unreadable handles an error of the source: what vanished is left out, what
// may not be read is skipped.
func (p *populator) unreadable(rel string, err error) error {
	switch {
	case gone(err):
		return nil
	case errors.Is(err, os.ErrPermission):
		p.skip(rel, "may not be read")
		return nil
	}
	return err
}

func (p *populator) entry(src, dst *os.File, name, rel string, depth int) error {
	var st unix.Stat_t
	if err := p.as.do(func() (err error) { st, err = statAt(src, name); return err }); err != nil {
		return p.unreadable(rel, err)
	}
	kind, detail := kindOf(&st)
	switch {
	case kind == Special:
		p.skip(rel, "is a "+detail)
		return nil
	case st.Dev != p.dev:
		p.skip(rel, "is on another file system")
		return nil
	case kind == Dir && tooDeep(rel, depth):
		p.skip(rel, "is too deep")
		return nil
	case kind == File:
		return p.file(src, dst, name, rel)
	case kind == Symlink:
		return p.symlink(src, dst, name, rel, &st)
	}
	return p.subdir(src, dst, name, rel, depth)
}

func (p *populator) symlink(src, dst *os.File, name, rel string, st *unix.Stat_t) error {
	var target string
	err := p.as.do(func() (err error) { target, err = readlinkAt(src, name); return err })
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			return nil // no longer a link
		}
		return p.unreadable(rel, err)
	}
	fd := int(dst.Fd())
	if err := unix.Symlinkat(target, fd, name); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, name, p.opts.UID, p.opts.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(fd, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	made, err := statAt(dst, name)
	if err != nil {
		return err
	}
	p.add(rel, &manifestEntry{kind: Symlink, target: target, origin: originIn(src, name, st), born: beneath.BornAt(dst, name)}, &made)
	return nil
}

func (p *populator) file(src, dst *os.File, name, rel string) error {
	var in *os.File
	var st unix.Stat_t
	err := p.as.do(func() (err error) { in, st, err = openFileAt(src, name); return err })
	if err != nil {
		return p.unreadable(rel, err)
	}
	defer in.Close()
	out, err := openAt(dst, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	ext, err := fileExtents(in, st.Size, st.Blocks)
	if err != nil && !errors.Is(err, errFragmented) {
		return err
	}
	if ext == nil && st.Size > 0 {
		ext = []Extent{{0, st.Size}}
	}
	n, err := copyExtents(p.ctx, out, in, ext, st.Size, p.progress)
	if err != nil {
		return err
	}
	p.done.Bytes += n
	var sum Digest
	if p.opts.Digests {
		if sum, err = p.dig.digestFile(p.ctx, out, st.Size, ext, p.buf); err != nil {
			return err
		}
	}
	if err := p.finish(out, &st); err != nil {
		return err
	}
	made, err := statFile(out)
	if err != nil {
		return err
	}
	p.add(rel, &manifestEntry{kind: File, digest: sum, origin: originIn(in, "", &st), born: beneath.Born(out)}, &made)
	return nil
}

func (p *populator) subdir(src, dst *os.File, name, rel string, depth int) error {
	var in *os.File
	err := p.as.do(func() (err error) { in, err = openDirAt(src, name); return err })
	if err != nil {
		return p.unreadable(rel, err)
	}
	defer in.Close()
	st, err := statFile(in)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(int(dst.Fd()), name, 0o700); err != nil {
		return err
	}
	out, err := openDirAt(dst, name)
	if err != nil {
		return err
	}
	defer out.Close()
	// A directory's change time moves with what is made in it, and nothing
	// compares it.
	p.add(rel, &manifestEntry{kind: Dir}, &unix.Stat_t{Mode: st.Mode & 0o1777})
	if err := p.dir(in, out, rel, depth); err != nil {
		return err
	}
	return p.finish(out, &st)
}

// finish gives a copy the owner, mode and times it is to have.
func (p *populator) finish(f *os.File, st *unix.Stat_t) error {
	fd := int(f.Fd())
	if err := unix.Fchown(fd, p.opts.UID, p.opts.GID); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o1777); err != nil {
		return err
	}
	times := [2]unix.Timespec{st.Atim, st.Mtim}
	return futimens(f, &times)
}

// originIn identifies what is copied. Of a file with several names nobody could say which of them a copy of it was.
func originIn(dir *os.File, name string, st *unix.Stat_t) Origin {
	if st.Nlink > 1 {
		return Origin{}
	}
	return identify(dir, name)
}

// add notes what was made at a path.
func (p *populator) add(rel string, e *manifestEntry, st *unix.Stat_t) {
	p.done.Files++
	e.path, e.mode, e.size = rel, st.Mode&0o7777, st.Size
	e.mtime, e.ctime, e.ino = st.Mtim.Nano(), st.Ctim.Nano(), st.Ino
	p.manifest.add(e)
	p.progress(0)
}
