// Package instance is what the walls of this host's kernel have in common: an instance's
// directory, its disk and the layers on it, the file system that it sees, the
// configuration of its guest agent, its control group, and how it is dialled,
// watched, ended and removed.
//
// A wall says in a Wall what it promises and how it starts an instance; with that
// a Backend is a sandbox.Backend. What is mounted is mounted in a mount namespace that
// dies with the instance, so no mount of an instance is ever seen on the host.
//
// The package refuses directories that are not the ones that were accepted,
// images that it does not have, and limits that were asked for and can't be
// enforced.
package instance
