// Package guest asks the agent in a sandbox or a machine by its action protocol: one
// request and one reply for each connection (package api/action has the types).
//
// It connects by AF_VSOCK where the kernel has that and the address has a context id, and
// else by a unix socket that speaks Firecracker's hybrid handshake: CONNECT and a port, answered by
// OK. `carboy inspect --json` names the socket of a sandbox.
//
// A reply counts only as a whole: one that ends early, is no JSON object, lacks a field or is
// longer than action.MaxReply is an error. Every call ends: by its context, or by a
// limit of its own.
package guest
