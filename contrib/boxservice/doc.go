// Package boxservice is the Go half of LangBot's Box for programs that embed it:
// sessions of sandboxes by a key of the program's choosing, through a runtime
// that `carboy langbot serve` is, or LangBot's own.
//
// There are three things, each of use without the next. A [Client] calls a
// runtime's actions. A [Connector] keeps a Client connected: to an endpoint, or
// to a child process that it starts, restarts and never leaves behind. A
// [Service] is what a platform gives its agents: it makes a session's key of a
// query, applies a profile, cuts output to what a model reads, and keeps the
// newest errors.
//
// The package builds no sandbox and keeps nothing on disk. It refuses an
// endpoint that is not ws, wss, http or https, control tokens that are weak,
// and answers that are no messages; an error of the runtime's comes back as
// what it was there, to be asked for by [Class] or errors.Is. No call is sent
// twice: where a connection breaks its calls fail with [ErrUnavailable].
package boxservice
