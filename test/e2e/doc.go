// Package e2e runs the built carboy as its users do: real sandboxes, a real
// daemon, real clients. It holds tests alone.
package e2e
