// Package langbot holds the wire types of LangBot's Box that the API of sessions
// lacks: actions and frames of its RPC, and classes of errors. The names are the
// original's. It has no logic, and reads and writes nothing.
package langbot
