// Package action serves the action protocol inside the guest: one request on a
// connection, and its reply (package api/action has the types). It runs commands,
// keeps shells and services, and moves archives and files, all by the sandbox's own
// user.
//
// It stands on what the agent has: package process starts and ends what runs, package
// journal keeps what shells write, packages files and archive act on files with the
// user's rights. What it remembers of shells and services lives in the agent, so it
// outlives the daemon.
//
// Requests are hostile. One that is no JSON object, has a field that is not known or
// a value of another kind, does not end, or announces an archive of another length than
// it sends is answered by an error in words. So is one too many: how many connections,
// shells and services there are, how long each wait is, and how much is read, kept and
// answered have bounds, and what a bound leaves out of a reply is said in it. The
// package takes no secrets, and dials nothing but the sandbox itself.
package action
