// Package service is the half of sessions that stands beside an agent platform:
// it decides which session a query is about, by which profile a command runs,
// how much of its output a model is shown, and which skills the session has.
//
// It knows a Runtime by what it is asked for alone, so that the same service
// stands before a runtime in this process and before one at the end of a
// connection. It refuses whatever it can't do while its runtime has no wall:
// nothing ever runs on the host instead.
package service
