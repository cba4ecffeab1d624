// Package enter makes the process that it runs in the first of an instance on the
// host's own kernel: the guest agent, before it is one.
//
// The starter of the process has made its namespaces, mapped its ids and
// composed the instance's root in its working directory. Enter adds what only the
// inside can: a /proc of the new pid namespace, devices, a terminal file
// system, a loopback. Then it makes that directory the root of everything and
// gives up what it does not need. Nothing of the host's file system can be
// reached any more.
//
// It refuses to go on where any step fails: an instance is whole or there is none.
package enter
