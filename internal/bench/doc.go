// Package bench measures Carboy against what else the machine has: plain
// processes, bubblewrap, runc, gVisor's own command line and Docker.
//
// Cases of one kind are measured in turn: a round runs each of them once, in
// an order that is shuffled anew, after a warm-up round that does not count.
// So what else the machine does meanwhile hits all of them alike. What fails
// is counted and told, and never part of a median. Nothing is asserted: a
// report says what was seen.
//
// A run has a daemon, directories and containers of its own, and takes them
// away at its end, however it ends. The package refuses to measure what was
// not asked for, and never touches the sandboxes, containers or images that
// the machine has already.
package bench
