// Package arch holds tests that guard the rules of this repository itself:
// which package may import which, how long a function may get, what must be
// said of every package. It refuses nothing that a reviewer would have to
// weigh. Each guard is also shown something that it must refuse, for one that
// never fires guards nothing.
package arch
