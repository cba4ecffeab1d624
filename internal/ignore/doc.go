// Package ignore decides what git's rules leave out of a tree: patterns as in
// .gitignore, and the paths that an index names.
//
// It reads no file system: who calls it finds the files and hands over their
// text. It runs in time that is bounded by the product of a pattern's and a
// path's length, as patterns may come from others. Against git itself it is held by
// a test that asks git check-ignore.
//
// Not git's are two things: core.ignoreCase is never on, and what core.excludesFile
// names has no part, so that a directory means the same for everybody.
package ignore
