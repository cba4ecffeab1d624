// Package policy decides what a sandbox may reach. It is pure: a policy and a
// name, a connection or a request in, a verdict and its reason out. It does
// no I/O and knows no clock; whoever asks enforces.
//
// It refuses everything that no rule is about, and a policy that says
// anything it does not know.
package policy
