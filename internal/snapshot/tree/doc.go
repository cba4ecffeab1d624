// Package tree copies trees of files as they are on disk, with owners, modes,
// times, extended attributes, hard links, holes, and what an overlay marks in
// its upper layer, so that the copy can be a lower layer; and it removes trees.
//
// What is in a tree is hostile: no link is followed, names are resolved against
// open directories, no more than a few descriptors are open however deep a tree
// is. It refuses a tree that changes while it is copied, and marks of overlays
// that it does not know; devices are left out, and counted.
package tree
