// Package process is the light wall: each instance is a set of namespaces on the
// host's own kernel, with a user namespace among them whose root is nobody
// outside, and its commands are held by a list of allowed system calls, by
// Landlock and by control groups.
//
// It starts in milliseconds and runs at the host's own speed, and the host's
// kernel is all that stands between its commands and the host: that is why it
// is chosen by name only and never stands in for another wall.
//
// The package refuses guest root, a network without a link, and limits that
// were asked for and can't be enforced here.
package process
