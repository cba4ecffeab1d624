// Package quarantine takes commits out of a sandbox's repository into that of its user.
//
// What the sandbox says, its refs and its objects, is hostile. The objects come as one
// pack into a directory of the user's own state, past package pack, which holds their
// number and their sizes. The machine's git then reads them there, and nowhere else is
// one of them looked at: as a role of this binary that has no network, starts no process,
// reads the quarantine and the user's objects, writes nothing but the index, and has no
// configuration, hook or attribute of anybody's. It refuses objects that are not as git
// makes them (trees with .git, .. or a bad mode, .gitmodules that command), and
// histories that lack something. Only what passed all of it is added to the user's
// repository: a pack and its index, and then refs below refs/carboy, all or none. They
// are one transaction, but for a pruned ref in whose place another comes, which git removes
// in one before, and which is put back if that other does not come. No hook runs, no reflog is written, nothing is checked out, and no other
// file of the repository changes.
//
// It refuses a repository whose directory for those refs is a link, names of refs that
// git would not have, and a kernel without Landlock.
package quarantine
