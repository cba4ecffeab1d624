// Package session keeps sandboxes that are asked for by a key of the caller's
// choosing: it makes or reuses one, runs commands in it one after the other,
// keeps its workspace, its quota and its processes, puts it to sleep when it
// is idle, and finds all of it again after the daemon was killed.
//
// It refuses what a session can't be: another shape than it has, a directory
// of the host that is not allowed, a hard quota where there can only be a soft
// one, a wall that is not there. It never takes another wall instead, and
// never runs anything outside one.
package session
