// Package tool is the inside half of the native tools: reading, writing and
// editing files, and looking for names and lines, for an agent that can't be
// trusted with more than its workspace, and whose files can't be trusted
// either.
//
// Each call names a root, and every path means something below it. Paths are
// cleaned as text and then walked by the kernel from the open root, which no
// link, no ".." and no rename meanwhile leads out of (see package beneath). It
// all runs on threads with the rights of the user whom the call names, so that
// even what is beneath the root is only what the user may touch.
//
// What a tool can't do is an answer for the model to read, not an error of
// HTTP. Answers are bounded, and so are the time and the memory that a call
// takes: files are read in pieces, directories a few thousand names at once,
// and patterns are RE2's, which take time in proportion to what they look at.
//
// It refuses special files, patterns that cost too much to build, and
// anything in a request that it does not know.
package tool
