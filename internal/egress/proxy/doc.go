// Package proxy is the HTTP half of a sandbox's gate. It takes connections
// that the sandbox opened, reads what they say, asks the policy about each
// request, has secrets put in, and passes on what may go: HTTP/1, HTTP/2, gRPC,
// WebSocket and event streams, in TLS or clear, transparently or by explicit
// proxying.
//
// It refuses what two readers could understand differently. SNI, Host or
// :authority, a target in absolute form, the host of CONNECT and the address
// must agree on every request of a connection; HTTP/1 is checked, byte by byte,
// before net/http reads it; a request goes to the address that the sandbox
// dialled or that the gate resolved, and to no other. It follows no redirect,
// adds no field, and trusts no certificate that does not verify.
package proxy
