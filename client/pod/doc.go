// Package pod speaks to pods, agents that other agents have spawned: lines of JSON over a
// unix socket. A method asks, events tell; there are no numbers of requests, so what a
// method did is read from the events.
//
// A pod may write a long snapshot of its conversation before anything else, or none: whoever
// sends reads meanwhile, and waits for no snapshot. A connection on which nothing is said is
// a probe, and no error.
//
// It refuses lines that are longer than it was told to keep, and does not guess at methods that it
// does not know. It starts nothing, and knows nothing of scope.
package pod
