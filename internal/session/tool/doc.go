// Package tool is the host's half of the native tools and of attachments: it
// asks the agent inside one sandbox for them, by a connection that the caller
// makes.
//
// What a tool could not do is a result that says so. An error of this package
// is a *sandbox.Error: the request was none, or the agent did not answer as
// one does. What it answers is hostile: an answer is bounded before it is
// read, and checked against what was asked and against every limit; one that
// does not hold is refused as a whole. No text of the guest becomes part of an
// error unless it is escaped and cut.
//
// Attachments go in and come out as one tar each. Names are cleaned both ways,
// and an inbox or an outbox is never one that a link leads to.
package tool
