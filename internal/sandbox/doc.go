// Package sandbox is the domain: what a sandbox is, what was promised of it,
// and the Manager that carries it from created to removed.
//
// It builds no walls, speaks no protocol and touches no file: it declares the
// Backend, Store and Clock that it needs and is handed them. It refuses what
// it can't promise: an unknown network, an impossible limit or a wall that
// does not exist is an error, never a weaker sandbox.
package sandbox
