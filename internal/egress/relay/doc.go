// Package relay carries bytes that policy has let through: streams and flows
// of datagrams, both ways, within limits and until one side ends, nothing has
// passed for too long, or the policy changes. It keeps the list of what is
// open, so that a change can be applied to it, and counts what a rule has
// used up.
//
// It decides nothing, and reads nothing of what it carries. What is over a
// limit is cut, never let through and counted.
package relay
