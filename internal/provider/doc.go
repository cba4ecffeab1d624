// Package provider knows coding agents: how each one's program is found, what it must
// reach and by which credential, how it is set up so that it asks nothing at its start,
// and how it is run. What is said of an agent is data, a file for each; users add theirs.
//
// It refuses a file with anything that it doesn't know, and shows nothing of the
// machine to a sandbox but a program's own installation, to be read. A credential's
// value never becomes part of a plan: files hold placeholders.
package provider
