// Package gvisor is the default wall: each instance is a gVisor sandbox that this
// very binary runs, re-executed as launcher, sentry and gofer.
//
// A launcher process, one per start, enters the instance's cgroups, builds the
// instance's file system in a mount namespace of its own, and boots gVisor over
// it; then it leaves, and the namespace lives as long as the instance's gofer. So
// no mount of an instance is ever seen on the host, and none can be left behind.
//
// The sentry holds no privilege of the host: it runs as a user of its own,
// without root as one of the caller's, in a user namespace, behind gVisor's
// system call filter and one of ours that refuses set-id mode bits. The package
// refuses a network without a link, and a limit that was asked for and can't
// be enforced here.
package gvisor
