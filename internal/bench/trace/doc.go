// Package trace tells from the kernel's own trace events which process had a
// processor when, which waited for one, and who woke whom.
//
// A Recorder has instances of tracefs to itself, in which only events of the
// tasks that it is told of, and of all that these start, are written down.
// Account makes of a run's events what an engineer reads.
package trace
