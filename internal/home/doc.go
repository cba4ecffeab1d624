// Package home knows where carboy keeps its things, and opens the unix sockets
// that lie there.
//
// Every place follows from the XDG variables, so that two homes are two
// worlds: nothing is shared between them, and nothing is looked for elsewhere.
// It refuses relative values, directories that other users could write to, and
// sockets that belong to someone else.
//
// A socket's path may have any length. The kernel's own bound of 107 bytes is
// passed by handles: the directory is opened once, and the socket is reached
// through /proc/self/fd.
package home
