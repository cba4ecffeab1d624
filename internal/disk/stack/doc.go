// Package stack says what a sandbox saw of its files, from the layers that they lie in: as the
// kernel's overlay shows them, without a mount. A layer is a directory of an ext4 image or of
// this machine.
//
// Whiteouts, in both of their forms, opaque directories and redirects are heeded; copies of
// metadata alone are not, for our overlays are mounted without.
//
// Layers are hostile: names are used from open directories and lead through no link of the
// machine, links are followed within the view alone, and what is held in memory is bounded.
// What can't be read, and what lies elsewhere, is left out and said.
package stack
