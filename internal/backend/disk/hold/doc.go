// Package hold keeps a disk image from losing what is written to it while the file
// system that it lies on is full: its writes wait until there is room.
//
// A loop device over a sparse file passes ENOSPC on as an I/O error, and the file
// system on it is broken from then on. So a process of ours stands between the two:
// it shows each image to its loop device as the one file of a file system of its own,
// by FUSE, and passes reads, writes and flushes on. A write that would take the last of
// the room, and one that finds none, is tried again until it succeeds, as a virtual
// machine pauses. A write to blocks that the image has already is never held. Nothing has
// to be watched for that: whoever fills the disk, and however fast, the write that finds
// it full waits, and an idle image costs nothing.
//
// The process depends on no other. While it runs, a daemon may die and another
// ask it what is held. It ends when it serves no image and nobody has asked it to
// stay. Where it is killed itself, its images give I/O errors from then on, as a disk
// whose cable is pulled: what was synced is on the host's disk, and nothing else is
// said to be.
//
// The package refuses orders of other users, and images that are not regular files.
package hold
