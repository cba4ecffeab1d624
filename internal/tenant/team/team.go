// Package team holds what a daemon knows of those who share it: which team an
// owner is, the keys that were made at run time, what each may have, and how
// much each had.
//
// A team is an owner of sandboxes: the holder of a key, or a user of the
// machine. It has no members. A key that is made never allows more than its
// maker's, and the key itself is kept nowhere: only its hash is.
package team

import "strings"

// ID is the ID of an owner's team. It is the same on every machine and for
// ever: clients keep it.
func ID(owner string) string { return named("team\x00" + owner) }

// MakerID is the ID under which whoever made a key is shown: nobody's name,
// and the same for the same one.
func MakerID(credential string) string { return named("maker\x00" + credential) }

// Name is what a team is called: its owner, without saying what that is.
func Name(owner string) string {
	if name, ok := strings.CutPrefix(owner, "key:"); ok {
		return name
	}
	return owner
}
