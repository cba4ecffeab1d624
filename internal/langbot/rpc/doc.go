// Package rpc carries the messages of LangBot's Box between a host and a
// runtime: the envelope, its framing over a WebSocket or over standard input
// and output, files in chunks, and the names that both ends make alike. Both
// ends use it: a Peer serves the other side's actions and calls its own over
// one connection.
//
// The names and limits are those of Box, whose versions differ in how they send
// a large message: those of mid-2026 and before cut it into several text
// messages of a WebSocket, later ones into the fragments of one. What arrives
// either way is read; see WebSocket for how the two are told apart, and for
// what is sent.
//
// What the other side sends is untrusted: a message is at most MaxMessage bytes
// in MaxFragments parts, at most MaxInFlight actions are under way, files are
// bounded in bytes, number and age, and an error's text is cut at
// MaxErrorText. The package knows nothing of sandboxes, and writes no file.
package rpc
