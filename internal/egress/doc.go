// Package egress is a sandbox's one way out. Each sandbox with a network has a
// gate: a process of its own, an unprivileged one of this same program, that
// holds the other end of the sandbox's only interface and that sandbox's
// policy and secrets, and nothing else. Gates, in the daemon, starts them,
// tells them what changes, and starts those again that die; they outlive it.
//
// What is here carries things out. Whether something may pass, package policy
// says; DNS, HTTP, secrets and bytes are the packages below.
//
// It refuses to run a gate with the rights of the daemon, to let anything
// through while there is no gate, and to call a sandbox networked from whose
// inside the promise was not seen to hold.
package egress
