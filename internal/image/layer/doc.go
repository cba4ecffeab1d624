// Package layer unpacks one layer of an image into a directory that overlayfs
// takes as a lower one.
//
// The layer is hostile: whoever made the image chose every byte of it, and
// Unpack often runs as root. All that it makes is made by name in an open
// directory that the kernel held beneath the target without following a link
// (openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS), and no last
// component is ever followed. What a layer says is either done, or left out
// and named in Result.Notes, or refuses the layer.
//
// Names. A leading slash and "." components are dropped, as every engine does.
// A name with a ".." component is refused even where it would stay inside. A
// missing parent is made, 0755 and root's. A parent that the layer made a
// link or a file is refused: writing through it is how layers escape, and no
// engine's own layers do it. Bytes that are no UTF-8 are kept.
//
// Twice the same path. A later entry takes the place of an earlier one. A
// directory over a directory is merged: the later mode, owner and time count.
// A directory over anything else is new, and opaque. Anything else over a
// directory needs it to be empty.
//
// Whiteouts become overlayfs's own: a character device 0:0, or the opaque
// mark. They are about the layers below alone, so one whose name this layer
// also has hides just what is below: before or after it, a file stays, and a
// directory becomes opaque. An opaque mark of the layer's root has no effect
// in overlayfs; Result.RootOpaque tells the caller, who must not mount what is
// below. An entry that brings overlayfs's forms of either itself is a forgery,
// and refused.
//
// Owners are numbers from 0 to 65535, what an instance has. They are set by root
// only, as are no others' files made. Of modes, set-id bits are dropped, and
// the sticky bit is kept on directories. Of extended attributes user.* are
// kept. Of times, modification times are kept. Fifos are made; devices and
// sockets are not. Sparse files are read, and keep their holes.
//
// Of PAX records, those that Go's tar package knows count. Other vendors'
// records are comments, as POSIX has it, but those that stand for access
// lists, flags and labels are noted. A global header has no effect, and is
// noted.
package layer
