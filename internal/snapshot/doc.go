// Package snapshot keeps what sandboxes wrote: for each snapshot a directory
// with its record and the layers that others are laid over.
//
// A snapshot gets its name last, once all of it is on the platter, and loses it
// first; what a daemon leaves half made or half deleted, the next one deletes.
// Records are ours, and are read strictly all the same. The package refuses ids
// that are not ours, and layers of a snapshot that it does not have. Who may
// use what is for the domain to say.
package snapshot
