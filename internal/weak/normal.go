//go:build !weakened

package weak

// On reports whether w is seeded: never, in this binary.
func On(Weakness) bool { return false }

// Environ is what a role that this process executes needs to be as weak.
func Environ() []string { return nil }

// Announce says on standard error what is missing: nothing, in this binary.
func Announce() {}

// Suffix ends the version of a binary.
const Suffix = ""
