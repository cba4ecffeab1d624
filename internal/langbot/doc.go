// Package langbot is the dialect of LangBot's Box: its actions over a WebSocket
// or over standard input and output, the relays of managed processes, and its
// health pages, over sessions and a store of skills that are ours.
//
// It is for one kind of caller: a host that knows the control token, or, where
// there is none, whatever reaches a listener of this machine alone. What that
// host says for whom an action is (its context: instance, workspace,
// generation) is believed within its instance; a context of another instance, of
// an older generation than was seen, or on a connection that did not say its
// instance is refused. An action without one, as clients of before there were
// several workspaces send, is for the daemon's own user; but an instance that
// has said workspaces has to say one each time.
//
// It refuses what a browser's page could send, hosts' names that are not this
// machine's where nothing else keeps pages out, and messages that are no
// document of the protocol. It never does more for a host than the operator
// configured: a host's own configuration names things, and allows nothing.
//
// Where a host wants admission, each workspace needs a grant; see admission.
package langbot
