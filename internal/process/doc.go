// Package process keeps one managed process in a session's sandbox: a program
// that speaks in lines over its standard input and output, to readers who come
// and go.
//
// The guest journals what the process writes; this end asks for it by offset,
// and lets the guest forget only what was delivered or is on this machine's
// disk. So each line arrives once and whole, whatever connection breaks, and
// though the daemon be killed in between; and a process that nobody reads is
// held back by its own pipe, with at most 1 MiB of its output in the sandbox
// and one line here. Its errors are read always, and the newest are shown.
//
// What is refused: a second reader beside the first, who waits instead; a line
// of more than 16 MiB, which is left out and said so. The values of the
// process's environment are sent to the guest and kept nowhere. What the guest
// answers is hostile: bounded, and never text of an error here.
package process
