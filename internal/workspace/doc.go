// Package workspace turns what an agent changed in its view of a user's
// directory into a stream, a diff and an apply.
//
// Two sides use it, and they trust each other's code but not each other's
// data. The producer (WriteChanges) reads what a sandbox left: the upper
// directory of an overlay, with what of the directory below shows through
// directories that were renamed, or a copy and the manifest that was written
// with it (Populate). It runs where the sandbox's disk is mounted, reads the
// directory below with its owner's rights and touches nothing else; before an
// apply, Whole has what shows through copied to that disk. The consumer (Read, Load, Compare, WritePatch, Apply) runs as the user
// who owns the directory, reads that directory itself and writes with that
// user's rights only.
//
// Everything in the stream but its framing is the agent's: names, link
// targets, modes, sizes, contents. So the consumer accepts a stream only if
// its paths are relative, clean, strictly ascending and below directories that
// the stream named before; it holds contents to the digest that was announced;
// it reads the stream to its end record before it changes anything; it opens
// every parent directory beneath the base without following a link or crossing
// a mount; and it holds back what the host would execute or follow
// (HoldRules) until the user names it.
//
// It refuses to merge: no copy of the earlier text is kept, so a file that
// changed on both sides is a conflict. It never applies set-id bits unless the
// file itself was named, never makes a device, fifo or socket, never gives a
// file an owner other than the caller or the one it had, and never carries a
// modification time over to the host, where an old one would hide a change
// from tools that compare times.
package workspace
