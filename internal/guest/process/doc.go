// Package process runs commands for callers who come and go: it starts them,
// journals their output, takes their input by offset, ends them with all that
// they started, and remembers how they ended.
//
// One Engine serves two protocols, envd's Process service and our own
// execService. The engine adds no shell and no program of its own to a
// command. It refuses root where the sandbox does, and a second start of an
// id that it knows is a second look at the same command.
package process
