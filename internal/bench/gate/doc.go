// Command gate measures what the way through a sandbox's gate costs, beside
// the plain way and other proxies that intercept TLS: mitmproxy and squid,
// where they are given. scripts/bench-gate.sh builds and runs it.
//
// It makes an internet of its own in a network namespace, with a resolver and
// servers, and runs carboy's daemon and the proxies in there: nothing leaves
// the machine. One client, this same program, does the same in each place: on
// the host, through a proxy, and in sandboxes of both walls, whose connections
// are passed on unread or intercepted. Places take turns, in an order that is
// shuffled each round. Nothing is asserted: a report says what was seen.
//
// It needs root, and refuses to measure without.
package main
