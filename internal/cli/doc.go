// Package cli is Carboy's command line: it turns arguments into calls of the
// daemon, and the daemon's answers into text or JSON.
//
// The commands are here. What they share has packages below: console, relay,
// archive, changes, fetch and exit; what a user says of a sandbox is launch's.
//
// It builds no walls and opens no state: all that concerns a sandbox goes
// through the client. What it reads and writes itself are the caller's own
// files: the two ends of cp, the workspace that diff and apply compare with,
// and files that flags name. stdout carries the answer, stderr everything
// else. Text that came from a guest is escaped, except for a terminal that
// was asked for with -t. It refuses to prompt where no terminal is.
package cli
