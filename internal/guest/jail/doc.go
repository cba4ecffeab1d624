// Package jail starts commands in namespaces of their own, with no more
// rights than their user has.
//
// A jail is one inner init, pid 1 of a pid and mount namespace in which the
// agent's own mounts are gone, and threads that have joined that namespace
// for good: a command is forked from one of them and inherits the namespaces,
// the bounded capabilities, no_new_privs and the system call filter. Nothing
// is executed between the agent and the command, and init, a fork of the
// agent that has given back the agent's memory, executes nothing at all.
//
// On a kernel that belongs to a wall the filter refuses only what would
// outlive the wall. A strict jail is for the host's own kernel: its threads
// have a list of allowed system calls, a Landlock domain and, where told to,
// cgroups of their own.
//
// Securebits are left alone: who has no capability, no_new_privs and no user
// namespace to make gains none by them.
//
// A jail refuses to start where its namespaces can't be made, a hidden path
// can't be covered or a cgroup not be entered. A kernel without Landlock is a
// warning. It does not wait for output, keep time or find the descendants of
// a command: packages process and cgroup do.
package jail
