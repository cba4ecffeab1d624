// Package cgroup limits, counts and ends the host processes of an instance with
// control groups, by their plain files alone.
//
// Find looks at what this machine has: version 1 (one tree per controller),
// version 2 (one tree for all) or both at once, and which of it the caller
// may write. A Host then makes one Group per instance, below "carboy/NAMESPACE" in
// every tree that is of use, so that two homes never meet. Root works at the
// top of each tree. Anybody else works in the part of the version 2 tree that
// systemd delegated to them, if the caller runs in one; package scope gets one.
//
// On a hybrid machine, where version 2 has no controllers of interest, an instance
// gets a group there all the same: it is what kills a whole instance at once and
// what a child can be cloned into.
//
// An instance whose commands run on the host's own kernel gets a part of its group
// for them (Group.Commands), with limits of their own: a command that reaches
// one dies of it, and the instance's agent does not. The agent can put commands
// there and can't change the limits.
//
// The package refuses to enforce by halves: a limit is set in the kernel and
// read back in the report as the file that holds it, or reported as not
// enforced with the reason. It never touches a group that it did not make,
// with one exception: where a delegated subtree is the caller's own group, the
// caller moves into a leaf of it ("carboy.daemon"), because version 2 gives
// limits only to children of groups without processes.
//
// Version 1 and the core files of version 2 (cgroup.kill, cgroup.events,
// cgroup.procs, cgroup.max.depth, delegation) are tested against the kernel. The controllers'
// files of version 2 are tested on an imitation of the tree only, where the
// machine that runs the tests has version 1.
package cgroup
