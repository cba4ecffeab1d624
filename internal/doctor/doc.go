// Package doctor finds out what this machine can enforce, by trying it.
//
// Each check makes the kernel do what a wall will ask of it, in a child or in
// a namespace of its own, and says what came of it, what its lack would cost,
// and the command that mends it. A version number or a setting alone proves
// nothing: settings are read only to explain an attempt that failed. What a
// wall is worth here is read off a real instance, with a command run in it, and so is the
// network: an instance with a link and a gate, whose agent tries from inside what must
// not work.
//
// A check that hangs, panics or loses its child costs its own line and no
// other. Nothing stays behind: instances and files are in a directory of this
// run's own, in the file system where sandboxes would be, and a run that was
// killed is cleaned up after by the next.
//
// The package changes no setting of the machine and needs no daemon. What it
// writes for a bug report holds no environment, no name of a user or of the
// machine, and no path of a home.
package doctor
