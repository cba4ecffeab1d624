// Package content gives access to what a volume holds, over HTTP as E2B's
// content API has it: list, look, read, write, make, change and remove.
//
// Guests write there, so no daemon does: each volume that is looked into has a
// process of its own, of this binary, that sees the volume as its whole file
// system, has no network, may do nothing but work on files, and ends when
// nobody has asked for a while. Paths are resolved below the volume's root by
// the kernel; a link that leads out of it is refused.
//
// A file appears under its name when it is whole, and never before.
package content
