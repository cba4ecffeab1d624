// Package ext4 reads file systems of the ext family (ext2, ext3, ext4) from their bytes,
// without a mount, rights or another program: inodes, directories, contents, links and
// extended attributes. It writes nothing.
//
// A file system that was not unmounted has its journal replayed in memory: blocks whose newest
// content lies in the journal are read from there.
//
// Images are hostile. Every count, offset, depth and length is bounded before it is used, and
// checksums are verified where the file system has them. It refuses, by name, features that it
// does not know, an external journal, fast commits that are yet to be replayed, encrypted
// contents, directories that fold case, and attributes whose value is an inode of its own.
//
// It follows the description of the format in the kernel's documentation.
package ext4
