// Package dns is a gate's resolver: the only one that a sandbox reaches.
//
// It asks the policy before it asks anybody else. What goes out is a question
// of its own making, for a name that a rule is about; what comes in is taken
// apart and put together anew. It remembers which names it gave which
// addresses for (pins): a connection may go only there.
//
// It refuses, and says why: names that no rule is about, names shaped to carry
// data, types that the policy does not name, other classes and operations,
// several questions at once, transfers, more questions than agreed. It takes
// out of answers what was not asked for, and addresses that are closed. It
// forwards nothing that a guest wrote: no options, no flags, no further
// records. It never serves what has expired.
package dns
