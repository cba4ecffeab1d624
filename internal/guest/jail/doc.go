// Package jail starts commands in namespaces of their own, with no more
// rights than their user has.
//
// A jail is one inner init, pid 1 of a pid and mount namespace in which the
// agent's own mounts are gone, and threads that have joined that namespace
// for good: a command is forked from one of them and inherits the namespaces,
// the bounded capabilities, no_new_privs and the system call filter. Nothing
// is executed between the agent and the command.
//
// A jail refuses to start where its namespaces can't be made or a hidden path
// can't be unmounted. It does not wait for output, keep time or find the
// descendants of a command: packages process and cgroup do.
package jail
