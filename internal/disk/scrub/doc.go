// Package scrub erases directories of an ext4 image file, so that no byte of what stood in
// them can be found in the file afterwards: neither what is there now nor what was there
// once, in free blocks, free inodes, the journal, the space behind the ends of files, or
// that between the entries of directories and of extended attributes.
//
// It works on a copy beside the image, which takes the image's name at the end: a process
// that is killed leaves the image of before or the one after. Programs of e2fsprogs replay
// the journal and settle counts and maps; what is erased is found and overwritten by this
// package, which hands no name of the image's to anybody.
//
// A file that has another name outside of the directories stays there. It refuses images
// that are attached or locked, have several names, are damaged, or have features whose
// structures it does not know.
package scrub
