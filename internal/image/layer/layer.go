// Package layer unpacks one layer of an image into a directory that overlayfs
// takes as a lower one, over those of the layers below it.
//
// The layer is hostile: whoever made the image chose every byte of it, and
// Unpack often runs as root. All that it makes is made by name in an open
// directory that the kernel held beneath the target without following a link
// (openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS), and no last
// component is ever followed. What a layer says is either done, or left out
// and named in Result.Notes, or refuses the layer.
//
// Names. A leading slash and "." components are dropped, as every engine does.
// A name with a ".." component is refused even where it would stay inside.
// Bytes that are no UTF-8 are kept.
//
// Parents. A layer is applied to what the layers below show, as engines do that
// unpack one over the other. A directory that it implies and does not list
// stays as it is below: owner, mode, time and attributes. One that is nowhere is
// made, 0755 and root's. A parent that is a link, of this layer or of one
// below, is followed by its text: "/" and ".." end at the layer's root, the kernel
// resolves none of it, and the entry is made where it leads. A parent that this layer
// made a file is refused; a file of the layers below gives way to a directory.
// A directory that is listed takes the place of a link, as in every engine.
//
// Twice the same path. A later entry takes the place of an earlier one. A
// directory over a directory is merged: the later mode, owner and time count.
// A directory over anything else is new, and opaque. Anything else over a
// directory needs it to be empty.
//
// Whiteouts become overlayfs's own: a character device 0:0, or the opaque
// mark. They are about the layers below alone, so one whose name this layer
// also has hides just what is below: before or after it, a file stays, and a
// directory becomes opaque. One that hides nothing is not made. An opaque mark of the layer's root has no effect
// in overlayfs; Result.RootOpaque tells the caller, who must not mount what is
// below. An entry that brings overlayfs's forms of either itself is a forgery,
// and refused.
//
// Hard links lead to a file or link of this layer or of those below, which is then
// copied into this one, as overlayfs does.
//
// Owners are numbers from 0 to 65535, what an instance has. Only root sets
// them; files that others unpack are their own. Of modes, set-id bits are dropped, and
// the sticky bit is kept on directories. Of extended attributes user.* are
// kept. Of times, modification times are kept. Fifos are made; devices and
// sockets are not, but what was there before is gone. Sparse files are read, and keep their holes.
//
// Of PAX records, those that Go's tar package knows count. Other vendors'
// records are comments, as POSIX has it, but those that stand for access
// lists, flags and labels are noted. A global header has no effect, and is
// noted.
package layer

import (
	"context"
	"errors"
	"io"
)

// Options tune Unpack. The zero value works.
type Options struct {
	Limits Limits
	// UserXattr marks opaque directories with user.overlay.opaque, for
	// overlays mounted with userxattr, instead of trusted.overlay.opaque,
	// which only root of the first user namespace can set.
	UserXattr bool
	// Below are the trees of the layers that this one lies over, the lowest first, each as Unpack
	// made it over those before it.
	Below []string
}

// opaque is the attribute that marks an opaque directory.
func (o Options) opaque() string {
	if o.UserXattr {
		return "user.overlay.opaque"
	}
	return "trusted.overlay.opaque"
}

// Limits bound what one layer may be. A field that is not above zero takes
// its default.
type Limits struct {
	Bytes     int64 // of the uncompressed archive, and of all files with their holes; default 32 GiB
	Entries   int   // with the directories that entries imply; default 2,000,000
	Steps     int   // from one component of a name to the next, in each layer, where parents are not this layer's own; default 4,000,000
	Ratio     int64 // bytes out of the decompressor for each that went in; default 1000
	RatioFrom int64 // bytes out before Ratio counts; default 64 MiB
	Path      int   // bytes of a name; default and at most 4096
	Xattr     int   // bytes of the attributes of one entry, names and values; default and at most 64 KiB
}

// What no option changes.
const (
	maxComponent = 255     // bytes, the kernel's
	maxTarget    = 4095    // bytes of a link's text, the kernel's
	maxDepth     = 512     // components, as in workspaces
	maxID        = 65535   // what an instance maps
	maxPAX       = 1 << 18 // bytes of the PAX records of one entry
	maxNames     = 1 << 26 // bytes of the names of all directories and whiteouts: they wait in memory
)

func (l Limits) orDefault() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	atMost := func(v *int, d int) {
		if *v <= 0 || *v > d {
			*v = d
		}
	}
	def(&l.Bytes, 32<<30)
	def(&l.Ratio, 1000)
	def(&l.RatioFrom, 64<<20)
	atMost(&l.Path, 4096)
	atMost(&l.Xattr, 64<<10)
	if l.Entries <= 0 {
		l.Entries = 2_000_000
	}
	if l.Steps <= 0 {
		l.Steps = 4_000_000
	}
	return l
}

// Result is what a layer held.
type Result struct {
	Bytes   int64  // of the contents of files, holes included
	Entries int    // that had an effect
	DiffID  string // "sha256:" and the digest of the uncompressed archive, in hex
	// RootOpaque says that the layer hides all below it. Overlayfs ignores
	// that mark on the root of a layer: leave the layers below out.
	RootOpaque bool
	// Notes say what was left out, a line for each kind, safe to print.
	Notes []string
}

// Unpack reads one layer, a tar or one compressed with gzip or zstd, to its
// end, and makes its tree in dir, an existing empty directory. A root file
// system in a tar is a layer too.
//
// A layer that is refused is a *sandbox.Error of kind Invalid whose text names
// the entry and the reason. A full disk is one of kind Exhausted, a kernel or
// file system that can't do what is needed Unsupported. An error of r comes
// back wrapped; that of a ctx that ended is its cause. After any error dir
// holds a part of the tree: delete it. Nothing is synced to disk.
//
// Unpack returns no sooner than the call of r.Read it may be in.
func Unpack(ctx context.Context, r io.Reader, dir string, o Options) (res Result, err error) {
	o.Limits = o.Limits.orDefault()
	t, err := openTree(dir)
	if err != nil {
		return Result{}, err
	}
	defer t.close()
	b, err := openBelow(o.Below, o.opaque(), o.Limits.Steps)
	if err != nil {
		return Result{}, err
	}
	defer b.close()
	in, err := openStream(ctx, r, o.Limits)
	if err != nil {
		return Result{}, err
	}
	defer in.close()
	u, err := newUnpacker(ctx, o, t, b, in)
	if err != nil {
		return Result{}, err
	}
	if err := u.run(); err != nil {
		return Result{}, err
	}
	u.res.DiffID = in.digest()
	u.res.Notes = u.notes.lines()
	return u.res, nil
}

// is reports whether err is one of targets.
func is(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
