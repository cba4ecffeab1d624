// Package skill keeps packages of instructions and files that agents are
// taught from, and brings them into sandboxes that run, and back.
//
// A package is a directory with a SKILL.md: YAML between two lines of three
// dashes, then instructions. A Store has them below one directory, apart for
// each namespace, and reaches them through open directories only: no link
// leads out, and no path of a caller is used as text. What it takes in, be it
// an archive, a directory or what a sandbox made of a package, is bounded and
// has files and directories alone; links, devices, modes and owners of others
// never get in. A change is whole or not there at all, also where the daemon
// is killed in the middle of it.
//
// Errors are sandbox.Errors, whose texts LangBot's users know.
package skill
