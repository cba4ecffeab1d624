// Package offer has programs outside a sandbox serve it by its gate: HTTP/2 in
// reverse. Who offers a service dials the gate and says its name, and is the
// server of that connection from then on; the gate, whose Desk takes offers,
// is the client. So a gate connects to nobody, and whoever it calls has proved
// before that they may be called: they could open its socket.
//
// It refuses names that the sandbox's policy has not, a second offer of a name
// while the first stands, more connections than there are names to offer, and
// more calls at once than a gate has memory for. Who calls is the gate's to
// know: what a guest says of that is taken out before a call gets here.
package offer
