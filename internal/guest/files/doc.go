// Package files is the file half of the guest agent: E2B envd's filesystem
// service, its /files, and Carboy's own /carboy/archive.
//
// The agent is root; a request is not. Every system call that takes a path,
// and every write, runs on a thread that has the requested user's effective
// ids, groups and mount namespace (see Workers), so that a link swapped under
// an operation leads nowhere the user could not go anyway, and what a user
// writes is charged and checked as the user's. Only reads of plain files that
// were opened there run elsewhere.
//
// # Paths
//
// "" is the user's start directory, "~" and "~/x" lie in the home, any other
// relative path in the start directory. ".." is resolved in the text, before
// links are followed. Names are bytes, but Connect's strings are UTF-8: a
// name that is not is listed with U+FFFD in place of what is wrong, and can
// be reached only through /files and /carboy/archive, whose query takes any
// byte.
//
// # What it leaves to others
//
// The channel is private to the host, which has checked the caller's token:
// the query parameters signature and signature_expiration are ignored here.
// The Authorization header names a user; it proves nothing.
package files
