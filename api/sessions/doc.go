// Package sessions holds the wire types of sessions: sandboxes that are asked for
// by a key of the caller's choosing ("this person", "this room") and not by an
// ID.
//
// The JSON names and the defaults are those of LangBot's Box, so that its client
// and this one speak to the same service; what that one does not have is marked
// as ours. The package has no logic, and reads and writes nothing.
package sessions
