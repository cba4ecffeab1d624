// Package link is the only wire between a sandbox and the rest of the world: a
// network namespace with one interface in it, and a TCP/IP stack in user space
// at the interface's other end.
//
// Create makes the namespace and the interface, a persistent TAP, with
// addresses and routes that are the same in every sandbox: no sandbox sees
// another. The process that holds the TAP's descriptor runs NewStack on it. All that
// the sandbox sends ends there, whatever its destination, and comes out as
// requests: a TCPRequest for each connection, a UDPRequest for each flow. The
// Handler accepts or refuses; the package itself decides nothing about
// destinations and opens no socket.
//
// It refuses, before the stack sees them, frames that no well-behaved guest
// sends: from another link or network address than the guest's, fragments, IP
// options, extension headers, other protocols than TCP, UDP and ICMP echo
// requests to the gate, lengths and checksums that don't agree. Connections,
// flows and their buffers are bounded; what exceeds a bound is refused at
// once, with a reset or an ICMP message, and not left to time out.
//
// While nobody holds the TAP the interface stays up without a carrier, and
// what is sent is lost. Attach takes it up again.
package link
