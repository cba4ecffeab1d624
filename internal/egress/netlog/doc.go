// Package netlog keeps what a sandbox tried to reach: a record for each DNS
// question, connection and request, allowed or not, as JSON lines in two files
// of bounded size that take turns.
//
// It keeps no header, no body, no query and no secret's value, and nothing for
// ever: the oldest half goes when the space is full.
package netlog
