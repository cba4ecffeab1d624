// Package gitgate stands between an agent's git and the repositories that it works with.
//
// To the agent it is an HTTP server that speaks git's smart protocol. It holds the keys
// of the repositories upstream, which the agent never sees, and a mirror of each. A fetch
// is answered from the mirror, once that is what upstream is now; where upstream can't be
// reached, it fails. A push comes into a quarantine. Each object that upstream does not
// have is looked at there, for secrets, sizes and what hosts or forges would run, and a
// policy lets it pass, refuses it, or has a person asked. What passes goes upstream as it
// was looked at, and no other object: all refs or none, from the values that the agent saw.
//
// The machine's git reads all that the agent or upstream sends, behind the walls of
// package jail: it has no network and no key. The network is this package's own: SSH with
// pinned keys of hosts, and HTTPS.
//
// It refuses upstreams whose key it was not told, dumb HTTP, push options, names that
// could deceive who reads them, and refs besides branches, tags and notes.
package gitgate
