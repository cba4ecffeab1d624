// Package boot is the program that gVisor's instances are made of: the launcher that
// boots one, its sentry and its gofer, which are gVisor's own, and what writes one's
// memory down. It alone links gVisor's kernel; the daemon's half, package gvisor, tells
// it what to boot, and knows its processes by their names.
//
// It refuses a descriptor, a flag or an argument that gVisor does not know, and leaves
// nothing running where a boot fails.
package boot
