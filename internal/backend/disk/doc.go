// Package disk keeps the writable layers of an instance in an ext4 image of its
// own, so that the file system itself holds the instance to its bytes and inodes.
//
// Images are sparse files. The first of each size is made with mke2fs and
// kept as a template; the others are copies of the few blocks that are not
// holes. An image is attached to a loop device that frees itself with the
// last unmount, so nothing has to be found and detached after a crash.
//
// Two loop devices over one image would destroy it. Mount therefore finds the
// device that has the image, if there is one, and mounts that again, which
// gives the same file system in another place or mount namespace. Who
// attaches first holds a lock on the open file that the device then keeps:
// the lock lasts exactly as long as the device does, whichever process dies meanwhile.
//
// What is on the platter when: templates are synced before they get their
// name. A new image is not synced by Make; the file system's own barriers
// reach the image file through the loop device, so what an instance has synced, and
// all that it wrote before an Unmount that returned, is there once the image
// file's directory entry is. A caller who records that an image exists syncs
// its directory first. After a crash the kernel replays the journal at the
// next Mount.
//
// The package refuses image files that are links or are not ext4, sizes that
// mke2fs would round to something else, and directories that others can write.
package disk
